{{- /* Not empty where there is a snapshotter: without a fleet it would have no jobs. */}}
{{- define "sandfleet.snapshotter.runs" -}}
{{- and .Values.fleet.enabled .Values.snapshotter.enabled | ternary "true" "" }}
{{- end }}

{{- define "sandfleet.snapshotter.args" -}}
- --fleet=sandfleet-fleet.{{ .Release.Namespace }}.svc:8443
{{- end }}

{{- /* Where snapshots are, the credentials for it, and the file of the keys that encrypt them. */}}
{{- define "sandfleet.snapshotter.env" -}}
{{- $values := .Values.snapshotter }}
- name: SANDFLEET_SNAPSHOTS
  value: {{ required "cannot keep snapshots: snapshotter.store.url is missing" $values.store.url | quote }}
- name: SANDFLEET_SNAPSHOT_SCRATCH
  value: {{ $values.scratch | quote }}
- name: SANDFLEET_SNAPSHOT_KEYS
  value: /etc/sandfleet-keys/keys.json
{{- with $values.store.credentialsSecret }}
{{- $secret := . }}
{{- range $name := list "AWS_ACCESS_KEY_ID" "AWS_SECRET_ACCESS_KEY" }}
- name: {{ $name }}
  valueFrom:
    secretKeyRef:
      name: {{ $secret }}
      key: {{ $name }}
{{- end }}
{{- end }}
{{- end }}

{{- define "sandfleet.snapshotter.keys" -}}
name: keys
secret:
  secretName: {{ required "cannot encrypt snapshots: snapshotter.keysSecret is missing" .Values.snapshotter.keysSecret }}
  items:
    - key: keys.json
      path: keys.json
{{- end }}
