{{- /* Not empty where there is an egress process: without a fleet it would know no lists. */}}
{{- define "sandfleet.egress.runs" -}}
{{- and .Values.fleet.enabled .Values.egress.enabled | ternary "true" "" }}
{{- end }}

{{- /* Of the settings. Sandboxes are told the address of the Service. */}}
{{- define "sandfleet.egress.settings" -}}
service: sandfleet-egress.{{ .Release.Namespace }}.svc:3129
sets: {{ toJson .Values.egress.sets }}
networks: {{ toJson .Values.egress.networks }}
{{- end }}

{{- define "sandfleet.egress.args" -}}
- --fleet=sandfleet-fleet.{{ .Release.Namespace }}.svc:8443
{{- end }}

{{- /* OpenSSL trusts the authorities of this file beside those of the image's folder. */}}
{{- define "sandfleet.egress.env" -}}
{{- if .Values.egress.authorities -}}
- name: SSL_CERT_FILE
  value: /etc/sandfleet-authorities/ca.crt
{{- end }}
{{- end }}

{{- define "sandfleet.egress.mounts" -}}
{{- if .Values.egress.authorities -}}
- name: authorities
  mountPath: /etc/sandfleet-authorities
  readOnly: true
{{- end }}
{{- end }}

{{- define "sandfleet.egress.volumes" -}}
{{- with .Values.egress.authorities -}}
- name: authorities
  configMap:
    name: {{ . }}
    items:
      - key: ca.crt
        path: ca.crt
{{- end }}
{{- end }}
