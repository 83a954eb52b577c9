{{- /* Not empty where there is a gateway: without a fleet it could ask none. */}}
{{- define "sandfleet.gateway.runs" -}}
{{- and .Values.fleet.enabled .Values.gateway.enabled | ternary "true" "" }}
{{- end }}

{{- /* Beside what every process is told. */}}
{{- define "sandfleet.gateway.args" -}}
- --fleet=sandfleet-fleet.{{ .Release.Namespace }}.svc:8443
- --max-tunnels={{ int .Values.gateway.maxTunnels }}
- --max-tunnels-per-caller={{ int .Values.gateway.maxTunnelsPerCaller }}
{{- end }}

{{- /* As clients in pods have it: the CA, and a token that says to the fleet, and to the fleet alone, who asks. */}}
{{- define "sandfleet.gateway.credentials" -}}
name: credentials
projected:
  sources:
    - serviceAccountToken:
        audience: sandfleet
        expirationSeconds: 3600
        path: token
    - configMap:
        name: sandfleet-ca
        items:
          - key: ca.crt
            path: ca.crt
{{- end }}
