{{- /*
The rights of one component: dict "root" $ "component" NAME. Three lists of rules:
  sandfleet.NAME.sandboxes  on what is where sandboxes are: everywhere, or in each of settings.watchNamespaces
  sandfleet.NAME.cluster    on what has no namespace
  sandfleet.NAME.own        on single objects of the release's namespace
*/}}
{{- define "sandfleet.rbac" -}}
{{- $root := .root }}
{{- $name := printf "%s-%s" (include "sandfleet.fullname" $root) .component }}
{{- $subject := dict "kind" "ServiceAccount" "name" $name "namespace" $root.Release.Namespace }}
{{- $labels := include "sandfleet.labels" . }}
{{- $sandboxes := include (printf "sandfleet.%s.sandboxes" .component) $root }}
{{- $cluster := include (printf "sandfleet.%s.cluster" .component) $root }}
{{- $own := include (printf "sandfleet.%s.own" .component) $root }}
{{- $namespaces := $root.Values.settings.watchNamespaces }}
{{- $everywhere := empty $namespaces | ternary (printf "%s\n%s" $sandboxes $cluster) $cluster }}
{{- include "sandfleet.granted" (dict "scope" "Cluster" "name" $name "labels" $labels "rules" $everywhere "subject" $subject) }}
{{- range $namespace := $namespaces }}
{{- include "sandfleet.granted" (dict "scope" "" "name" $name "namespace" $namespace "labels" $labels "rules" $sandboxes "subject" $subject) }}
{{- end }}
{{- include "sandfleet.granted" (dict "scope" "" "name" (printf "%s-own" $name) "namespace" $root.Release.Namespace "labels" $labels "rules" $own "subject" $subject) }}
{{- end }}

{{- /* A role and its binding. */}}
{{- define "sandfleet.granted" }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .scope }}Role
metadata:
  name: {{ .name }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- .labels | nindent 4 }}
rules:
  {{- .rules | trim | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .scope }}RoleBinding
metadata:
  name: {{ .name }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- .labels | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ .scope }}Role
  name: {{ .name }}
subjects:
  - {{- toYaml .subject | nindent 4 }}
{{- end }}
