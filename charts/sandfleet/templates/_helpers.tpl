{{- define "sandfleet.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- else if contains $name .Release.Name }}
{{- .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- /* Of a component: dict "root" $ "component" NAME. */}}
{{- define "sandfleet.selector" -}}
app.kubernetes.io/name: {{ default .root.Chart.Name .root.Values.nameOverride }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "sandfleet.labels" -}}
{{ include "sandfleet.selector" . }}
{{ include "sandfleet.commonLabels" .root }}
{{- end }}

{{- define "sandfleet.commonLabels" -}}
app.kubernetes.io/part-of: sandfleet
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- /* Of what belongs to no component. */}}
{{- define "sandfleet.sharedLabels" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{ include "sandfleet.commonLabels" . }}
{{- end }}

{{- define "sandfleet.image" -}}
{{- $image := .Values.image }}
{{- printf "%s:%s" $image.repository (default .Chart.AppVersion $image.tag) }}
{{- with $image.digest }}@{{ . }}{{ end }}
{{- end }}

{{- define "sandfleet.settings" -}}
{{- $own := dict "controlPlaneNamespace" .Release.Namespace }}
{{- if include "sandfleet.snapshotter.runs" . }}
{{- $own = set $own "snapshotter" true }}
{{- end }}
{{- if .Values.admissionPolicy.enabled }}
{{- $own = set $own "admissionPolicies" (list (printf "%s-control-metadata" (include "sandfleet.fullname" .))) }}
{{- end }}
{{- if include "sandfleet.egress.runs" . }}
{{- $own = set $own "egress" (include "sandfleet.egress.settings" . | fromYaml) }}
{{- end }}
{{- $volumes := semverCompare ">=1.35-0" .Capabilities.KubeVersion.Version | ternary "ImageVolume" "InitContainer" }}
{{- $delivery := eq .Values.settings.executor.delivery "Auto" | ternary $volumes .Values.settings.executor.delivery }}
{{- $image := default (printf "sandfleet/executor:%s" .Chart.AppVersion) .Values.settings.executor.image }}
{{- $own = set $own "executor" (dict "image" $image "delivery" $delivery) }}
{{- merge $own .Values.settings | toJson }}
{{- end }}

{{- define "sandfleet.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{- define "sandfleet.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- /* Of a component's pods: everything but the container's ports and probes. */}}
{{- define "sandfleet.podMetadata" -}}
{{- $values := index .root.Values .component }}
labels:
  # By which the operator finds its own pod.
  sandfleet.io/component: {{ .component }}
  {{- toYaml (merge (include "sandfleet.labels" . | fromYaml) (omit $values.podLabels "sandfleet.io/component")) | nindent 2 }}
{{- $settings := dict "checksum/settings" (include "sandfleet.settings" .root | sha256sum) }}
{{- /* The others do not read them; another pod of the gateway would cut its connections. */}}
{{- with merge (has .component (list "gateway" "snapshotter") | ternary dict $settings) $values.podAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "sandfleet.podSpec" -}}
{{- $values := index .root.Values .component }}
serviceAccountName: {{ include "sandfleet.fullname" .root }}-{{ .component }}
automountServiceAccountToken: {{ not (has .component (list "gateway" "snapshotter")) }}
enableServiceLinks: false
terminationGracePeriodSeconds: 30
securityContext:
  {{- include "sandfleet.podSecurity" . | nindent 2 }}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if and (has .component (list "operator" "fleet" "egress")) (empty $values.topologySpreadConstraints) }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "sandfleet.selector" . | nindent 8 }}
{{- end }}
{{- range $field := list "nodeSelector" "tolerations" "affinity" "topologySpreadConstraints" "priorityClassName" }}
{{- with index $values $field }}
{{ $field }}:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
volumes:
  {{- if eq .component "snapshotter" }}
  - {{- include "sandfleet.snapshotter.keys" .root | nindent 4 }}
  {{- end }}
  {{- if has .component (list "gateway" "snapshotter" "egress") }}
  - {{- include "sandfleet.gateway.credentials" .root | nindent 4 }}
  {{- end }}
  {{- if eq .component "egress" }}
  {{- include "sandfleet.egress.volumes" .root | nindent 2 }}
  {{- end }}
  {{- if not (has .component (list "gateway" "snapshotter")) }}
  - name: settings
    configMap:
      name: {{ include "sandfleet.fullname" .root }}-settings
  {{- end }}
  - name: tmp
    emptyDir:
      {{- /* Exports and imports pass through the snapshotter's as files. */}}
      sizeLimit: {{ eq .component "snapshotter" | ternary .root.Values.snapshotter.scratch "64Mi" }}
{{- end }}

{{- define "sandfleet.container" -}}
{{- $values := index .root.Values .component }}
name: {{ .component }}
image: {{ include "sandfleet.image" .root | quote }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
args:
  - sandfleet_operator
  - {{ .component }}
  - --health-port=8081
  {{- if eq .component "gateway" }}
  {{- include "sandfleet.gateway.args" .root | nindent 2 }}
  {{- else if eq .component "snapshotter" }}
  {{- include "sandfleet.snapshotter.args" .root | nindent 2 }}
  {{- else if eq .component "egress" }}
  {{- include "sandfleet.egress.args" .root | nindent 2 }}
  {{- end }}
env:
  {{- if eq .component "snapshotter" }}
  {{- include "sandfleet.snapshotter.env" .root | nindent 2 }}
  {{- else if ne .component "gateway" }}
  - name: SANDFLEET_SETTINGS
    value: /etc/sandfleet/settings.json
  {{- with .root.Values.audit.destination }}
  - name: SANDFLEET_AUDIT
    value: {{ . | quote }}
  {{- end }}
  {{- with .root.Values.otlp.endpoint }}
  - name: OTEL_EXPORTER_OTLP_ENDPOINT
    value: {{ . | quote }}
  {{- end }}
  {{- end }}
  {{- if and (eq .component "fleet") .root.Values.reviews.webhook.url }}
  - name: SANDFLEET_REVIEW_WEBHOOK_URL
    value: {{ .root.Values.reviews.webhook.url | quote }}
  - name: SANDFLEET_REVIEW_WEBHOOK_SECRET
    valueFrom:
      secretKeyRef:
        name: {{ required "cannot sign webhooks: reviews.webhook.secretName is missing" .root.Values.reviews.webhook.secretName }}
        key: secret
  {{- end }}
  - name: POD_NAME
    valueFrom:
      fieldRef:
        fieldPath: metadata.name
  - name: POD_NAMESPACE
    valueFrom:
      fieldRef:
        fieldPath: metadata.namespace
  - name: POD_IP
    valueFrom:
      fieldRef:
        fieldPath: status.podIP
  {{- if eq .component "egress" }}
  {{- include "sandfleet.egress.env" .root | nindent 2 }}
  {{- end }}
  {{- with $values.env }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
resources:
  {{- toYaml $values.resources | nindent 2 }}
securityContext:
  {{- include "sandfleet.containerSecurity" . | nindent 2 }}
volumeMounts:
  {{- if eq .component "snapshotter" }}
  - name: keys
    mountPath: /etc/sandfleet-keys
    readOnly: true
  {{- end }}
  {{- if has .component (list "gateway" "snapshotter" "egress") }}
  - name: credentials
    mountPath: /var/run/secrets/sandfleet
    readOnly: true
  {{- end }}
  {{- if eq .component "egress" }}
  {{- include "sandfleet.egress.mounts" .root | nindent 2 }}
  {{- end }}
  {{- if not (has .component (list "gateway" "snapshotter")) }}
  - name: settings
    mountPath: /etc/sandfleet
    readOnly: true
  {{- end }}
  - name: tmp
    mountPath: /tmp
{{- end }}

{{- define "sandfleet.deploymentSpec" -}}
replicas: {{ (index .root.Values .component).replicas }}
revisionHistoryLimit: 3
strategy:
  type: RollingUpdate
  rollingUpdate:
    maxUnavailable: 0
    maxSurge: 1
selector:
  matchLabels:
    {{- include "sandfleet.selector" . | nindent 4 }}
{{- end }}

{{- define "sandfleet.budget" -}}
{{- $budget := (index .root.Values .component).podDisruptionBudget }}
{{- if $budget.enabled }}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "sandfleet.fullname" .root }}-{{ .component }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "sandfleet.labels" . | nindent 4 }}
spec:
  maxUnavailable: {{ $budget.maxUnavailable }}
  selector:
    matchLabels:
      {{- include "sandfleet.selector" . | nindent 6 }}
{{- end }}
{{- end }}

{{- define "sandfleet.account" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ include "sandfleet.fullname" .root }}-{{ .component }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "sandfleet.labels" . | nindent 4 }}
  {{- with (index .root.Values .component).serviceAccountAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
automountServiceAccountToken: false
{{- end }}

{{- /* In to the ports that a component serves, from anywhere: nodes probe, clients come from any namespace. */}}
{{- define "sandfleet.closed" -}}
{{- if .root.Values.networkPolicy.enabled }}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ include "sandfleet.fullname" .root }}-{{ .component }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "sandfleet.labels" . | nindent 4 }}
spec:
  podSelector:
    matchLabels:
      {{- include "sandfleet.selector" . | nindent 6 }}
  policyTypes: [Ingress]
  ingress:
    - ports:
        {{- range .ports }}
        - protocol: TCP
          port: {{ . }}
        {{- end }}
{{- end }}
{{- end }}

{{- /* Of all components. The event loop answers: a stuck one is restarted, an outage of the API server is not. */}}
{{- define "sandfleet.probes" -}}
startupProbe:
  httpGet: {path: /healthz, port: health}
  periodSeconds: 2
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /healthz, port: health}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 3
# Of a standby too: it is ready to take over. The answer says who leads.
readinessProbe:
  httpGet: {path: /readyz, port: health}
  periodSeconds: 5
  timeoutSeconds: 5
{{- end }}
