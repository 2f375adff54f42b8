{{/* The end of the names of objects that have no namespace. */}}
{{- define "postern.suffix" -}}
{{- if ne .Release.Namespace "postern-system" }}-{{ .Release.Namespace }}{{ end -}}
{{- end }}

{{- define "postern.labels" -}}
app.kubernetes.io/name: postern
{{- end }}

{{- define "postern.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end -}}
{{- end -}}
{{- end }}

{{/* The Secret with the certificate, or nothing if Postern issues it. */}}
{{- define "postern.certificateSecret" -}}
{{- if .Values.certificates.certManager.enabled -}}
postern-tls
{{- else -}}
{{ .Values.certificates.secretName }}
{{- end -}}
{{- end }}

{{/* The enabled plugins, by the rules of --enable-admission-plugins, --disable-admission-plugins and --api-server-plugins. */}}
{{- define "postern.enabled" -}}
{{- $enabled := list -}}
{{- range (.Files.Get "files/plugins.yaml" | fromYaml).plugins -}}
  {{- $running := has .name $.Values.apiServerPlugins -}}
  {{- if and (has "default" $.Values.apiServerPlugins) .default }}{{ $running = true }}{{ end -}}
  {{- if or (has .name $.Values.plugins) (and .default (not $running) (not (has .name $.Values.disabledPlugins))) -}}
    {{- $enabled = append $enabled .name -}}
  {{- end -}}
{{- end -}}
{{ $enabled | toJson }}
{{- end }}

{{/* The configuration file. */}}
{{- define "postern.configuration" -}}
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
{{- range $name, $configuration := .Values.configuration }}
  - name: {{ $name }}
    configuration:
{{ $configuration | toYaml | indent 6 }}
{{- end }}
{{- end }}

{{- define "postern.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "postern.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}
