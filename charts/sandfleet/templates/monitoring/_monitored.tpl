{{- /* The pods with metrics. */}}
{{- define "sandfleet.monitored" -}}
matchLabels:
  app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
  app.kubernetes.io/instance: {{ .Release.Name }}
matchExpressions:
  - key: app.kubernetes.io/component
    operator: In
    values: [fleet, operator]
{{- end }}
