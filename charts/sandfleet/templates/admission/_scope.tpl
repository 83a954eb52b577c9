{{- /* The accounts of this release that write for sandboxes, as a CEL list. */}}
{{- define "sandfleet.accounts" -}}
{{- $accounts := list (printf "system:serviceaccount:%s:%s-operator" .Release.Namespace (include "sandfleet.fullname" .)) }}
{{- if .Values.fleet.enabled }}
{{- $accounts = append $accounts (printf "system:serviceaccount:%s:%s-fleet" .Release.Namespace (include "sandfleet.fullname" .)) }}
{{- end }}
{{- $accounts | toJson | replace "\"" "'" }}
{{- end }}

{{- /* Whom most policies are about: everybody but these accounts. */}}
{{- define "sandfleet.byOthers" -}}
- name: by-others-than-the-control-plane
  expression: "!(request.userInfo.username in {{ include "sandfleet.accounts" . }})"
{{- end }}

{{- /* Where the bindings hold: in the namespaces of this release. */}}
{{- define "sandfleet.ownNamespaces" -}}
{{- with .Values.settings.watchNamespaces -}}
matchResources:
  namespaceSelector:
    matchExpressions:
      - key: kubernetes.io/metadata.name
        operator: In
        values:
          {{- toYaml . | nindent 10 }}
{{- end }}
{{- end }}
