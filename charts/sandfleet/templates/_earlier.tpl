{{- /*
Objects with the field names of a release before the renaming (docs/dev/adr/0025-crd-conventions.md). The API server would
drop these fields without a word as soon as it has the new definitions.
*/}}

{{- /* The old fields in a spec, each on a line of its own; `path` says where the spec stands. */}}
{{- define "sandfleet.earlierFields" }}
{{- $path := .path }}
{{- $spec := .spec | default dict }}
{{- range tuple "template" "pool" "queue" "limits" "size" }}
{{- if hasKey $spec . }}{{ printf "%s.%s\n" $path . }}{{ end }}
{{- end }}
{{- $resources := $spec.resources | default dict }}
{{- range tuple "cpu" "memory" "ephemeralStorage" }}
{{- if hasKey $resources . }}{{ printf "%s.resources.%s\n" $path . }}{{ end }}
{{- end }}
{{- range $part := tuple "limits" "requests" }}
{{- if hasKey (get $resources $part | default dict) "ephemeralStorage" }}{{ printf "%s.resources.%s.ephemeralStorage\n" $path $part }}{{ end }}
{{- end }}
{{- $words := tuple "autonomous" "brokered" "reviewed" }}
{{- if has ($spec.contract | default "") $words }}{{ printf "%s.contract\n" $path }}{{ end }}
{{- range $spec.contracts }}
{{- if has . $words }}{{ printf "%s.contracts\n" $path }}{{ break }}{{ end }}
{{- end }}
{{- range $number, $service := $spec.services }}
{{- range tuple "readiness" "liveness" "restart" "graceSeconds" }}
{{- if hasKey $service . }}{{ printf "%s.services[%d].%s\n" $path $number . }}{{ end }}
{{- end }}
{{- end }}
{{- with $spec.inline }}{{ include "sandfleet.earlierFields" (dict "path" (printf "%s.inline" $path) "spec" .) }}{{ end }}
{{- end }}

{{- /* Ends the rendering where one of the `objects`, or the ceiling `inline` of the values, has such a field. */}}
{{- define "sandfleet.refuseEarlier" }}
{{- $how := "docs/howto/install.md says how to go over, under \"From a release before the fields were renamed\"" }}
{{- with include "sandfleet.earlierFields" (dict "path" "settings.inline" "spec" .inline) | trim }}
{{- fail (printf "cannot use settings.inline, which has fields of an earlier release: %s; %s" (splitList "\n" . | join ", ") $how) }}
{{- end }}
{{- $found := list }}
{{- range .objects }}
{{- $object := printf "%s %s/%s" .kind .metadata.namespace .metadata.name }}
{{- with include "sandfleet.earlierFields" (dict "path" "spec" "spec" .spec) | trim }}
{{- $found = append $found (printf "%s (%s)" $object (splitList "\n" . | join ", ")) }}
{{- end }}
{{- end }}
{{- if $found }}
{{- $more := sub (len $found) 5 }}
{{- $named := slice $found 0 (min 5 (len $found)) | join "; " }}
{{- $rest := gt $more 0 | ternary (printf "; and %d more" $more) "" }}
{{- fail (printf "cannot upgrade: fields of an earlier release would be lost: %s%s; %s" $named $rest $how) }}
{{- end }}
{{- end }}
