{{- /*
The processes make their Leases, and no uninstall removes them: they count who has led. A Lease that an earlier release of the chart
made stays in this release, because Helm would delete what is missing in it, and could not roll back to what is there already.
`found` is the Lease as the cluster has it.
*/}}
{{- define "sandfleet.earlierLease" }}
{{- $labels := dig "metadata" "labels" dict (.found | default dict) }}
{{- if and .root.Release.IsUpgrade (eq (get $labels "app.kubernetes.io/managed-by") "Helm") }}
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata:
  name: {{ .found.metadata.name }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "sandfleet.sharedLabels" .root | nindent 4 }}
  annotations:
    helm.sh/resource-policy: keep
{{- end }}
{{- end }}
