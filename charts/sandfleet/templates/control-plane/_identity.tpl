{{- /* The chart makes the Secret, empty: so no account needs the right to create Secrets, which cannot be granted for one name. */}}
{{- define "sandfleet.identity" -}}
- apiGroups: [""]
  resources: [secrets]
  resourceNames: [sandfleet-signing]
  verbs: [get, update, patch]
- apiGroups: [""]
  resources: [configmaps]
  verbs: [create]
- apiGroups: [""]
  resources: [configmaps]
  resourceNames: [sandfleet-ca]
  verbs: [get, update, patch]
{{- end }}
