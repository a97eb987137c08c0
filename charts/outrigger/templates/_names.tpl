{{/* Labels of all objects. Names are fixed: a cluster has only one Outrigger. */}}
{{- define "outrigger.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | quote }}
app.kubernetes.io/version: {{ .Values.images.tag | default .Chart.AppVersion | trunc 63 | trimAll "-_." | quote }}
app.kubernetes.io/part-of: outrigger
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{/* Labels that select a component's pods: list of context and name. */}}
{{- define "outrigger.selector" -}}
app.kubernetes.io/name: {{ index . 1 }}
app.kubernetes.io/instance: {{ (index . 0).Release.Name | quote }}
{{- end }}

{{/* Metadata labels of a component: list of context and name. */}}
{{- define "outrigger.component" -}}
app.kubernetes.io/name: {{ index . 1 }}
{{ include "outrigger.labels" (index . 0) }}
{{- end }}

{{/* The same with labels of the values, which do not replace ours: list of context,
name, and those. */}}
{{- define "outrigger.labelled" -}}
{{ toYaml (merge (include "outrigger.component" . | fromYaml) (index . 2 | default dict)) }}
{{- end }}

{{/* An image: list of context, its name, and what the values say instead. */}}
{{- define "outrigger.image" -}}
{{- $ := index . 0 -}}
{{- with index . 2 }}{{ . }}{{ else }}{{ printf "%s/%s:%s" $.Values.images.registry (index . 1) ($.Values.images.tag | default $.Chart.AppVersion) }}{{ end -}}
{{- end }}

{{- define "outrigger.pullSecrets" -}}
{{- with .Values.images.pullSecrets }}
imagePullSecrets:
{{- range . }}
- name: {{ . | quote }}
{{- end }}
{{- end }}
{{- end }}

{{/* Pod Security's level "restricted", for a container of the operator's user; 0: the
platform chooses. */}}
{{- define "outrigger.restricted" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
{{- with .Values.operator.runAsUser }}
runAsUser: {{ int64 . }}
runAsGroup: {{ int64 . }}
{{- end }}
capabilities: {drop: [ALL]}
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* Placement of a component's pods: its values. */}}
{{- define "outrigger.placement" -}}
{{- with .priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
nodeSelector: {{ toYaml (merge dict (.nodeSelector | default dict) (dict "kubernetes.io/os" "linux")) | nindent 2 }}
{{- with .tolerations }}
tolerations: {{ toYaml . | nindent 0 }}
{{- end }}
{{- with .affinity }}
affinity: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end }}
