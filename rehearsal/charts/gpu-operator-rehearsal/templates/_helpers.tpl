{{/* Labels of everything that this chart makes. */}}
{{- define "gpu-operator-rehearsal.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/part-of: holdfast-rehearsal
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{/* The image of the stand-in's programs: required, and by digest. */}}
{{- define "gpu-operator-rehearsal.image" -}}
{{- $image := .Values.rehearsal.image -}}
{{- $fix := "write the image of the stand-in's programs by digest: name@sha256:<64 hexadecimal digits>" -}}
{{- if not $image -}}
{{- fail (printf "rehearsal.image is empty, and the chart has no image of its own: %s" $fix) -}}
{{- else if not (regexMatch "@sha256:[a-f0-9]{64}$" $image) -}}
{{- fail (printf "rehearsal.image is %q, which can change under the same name: %s" $image $fix) -}}
{{- end -}}
{{- $image -}}
{{- end }}

{{/* What no program of the stand-in needs more of. */}}
{{- define "gpu-operator-rehearsal.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}
