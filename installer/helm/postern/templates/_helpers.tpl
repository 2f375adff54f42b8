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

{{/* What the chart knows of the program: its plugins, their roles, and the names of its webhook configurations. */}}
{{- define "postern.program" -}}
{{- .Values.program | default (.Files.Get "files/program.yaml" | fromYaml).program | toYaml -}}
{{- end }}

{{/*
The names of the webhook configurations of the program, and those that the release may delete already: another program may have
registered them. They are read from the rule of the role that allows just this: who may annotate a role, or add another rule to it,
may not be allowed to grant it.
*/}}
{{- define "postern.configurations" -}}
{{- $suffix := include "postern.suffix" . -}}
{{- $names := list -}}
{{- range (include "postern.program" . | fromYaml).configurations }}{{ $names = append $names (printf "%s%s" . $suffix) }}{{ end -}}
{{- range $rule := (lookup "rbac.authorization.k8s.io/v1" "ClusterRole" "" (printf "postern%s" $suffix)).rules -}}
  {{- $held := and (has "admissionregistration.k8s.io" $rule.apiGroups) (has "mutatingwebhookconfigurations" $rule.resources) (has "validatingwebhookconfigurations" $rule.resources) -}}
  {{- range list "get" "create" "patch" "delete" }}{{ $held = and $held (has . $rule.verbs) }}{{ end -}}
  {{- if $held }}{{ $names = concat $names ($rule.resourceNames | default list) }}{{ end -}}
{{- end -}}
{{ $names | uniq | toJson }}
{{- end }}

{{/* The enabled plugins, by the rules of --enable-admission-plugins, --disable-admission-plugins and --api-server-plugins. */}}
{{- define "postern.enabled" -}}
{{- $enabled := list -}}
{{- range (include "postern.program" . | fromYaml).plugins -}}
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
  - name: {{ $name | quote }}
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

{{/*
Refuses mistakes in more than one value, for which the schema has no clear message. It renders nothing. Every flag that the
Deployment has from a value is here, because the chart reads the values, and not the arguments, for its roles, ports and files. So is
the older flag for the same, and so are flags for what the chart makes: the CA that replicas share, the Service and the service account.
*/}}
{{- define "postern.validate" -}}
{{- $mistakes := list -}}
{{- if eq (int .Values.securePort) (int .Values.healthPort) -}}
  {{- $mistakes = append $mistakes (printf "securePort and healthPort: both are %d, but a process needs two ports" (int .Values.securePort)) -}}
{{- end -}}
{{- if and .Values.certificates.secretName .Values.certificates.certManager.enabled -}}
  {{- $mistakes = append $mistakes "certificates: set either secretName or certManager.enabled, not both" -}}
{{- end -}}
{{- $program := include "postern.program" . | fromYaml -}}
{{- $enabled := include "postern.enabled" . | fromJsonArray -}}
{{- $configuration := .Values.configuration | default dict -}}
{{- $known := dict -}}
{{- range $program.plugins }}{{ $_ := set $known .name . }}{{ end -}}
{{- range $value, $names := dict "plugins" .Values.plugins "disabledPlugins" .Values.disabledPlugins "configuration" (keys $configuration | sortAlpha) -}}
  {{- range $names -}}
    {{- if not (hasKey $known .) -}}
      {{- $mistakes = append $mistakes (printf "%s: there is no plugin %s; there are: %s. If it is yours, set the value program" $value . (keys $known | sortAlpha | join ", ")) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- range $program.plugins -}}
  {{- if hasKey $configuration .name -}}
    {{- if not .configurable -}}
      {{- $mistakes = append $mistakes (printf "configuration.%s: the plugin has no configuration" .name) -}}
    {{- else if not (has .name $enabled) -}}
      {{- $mistakes = append $mistakes (printf "configuration.%s: the plugin is not enabled, so it has no effect: add %s to plugins" .name .name) -}}
    {{- end -}}
  {{- else if and .needsConfiguration (has .name $enabled) -}}
    {{- $mistakes = append $mistakes (printf "plugins: %s needs a configuration: set configuration.%s" .name .name) -}}
  {{- end -}}
{{- end -}}
{{- if not (or $enabled $program.services .Values.allowNoPlugins) -}}
  {{- $mistakes = append $mistakes "plugins: no plugin is enabled: add one, or set allowNoPlugins" -}}
{{- end -}}
{{- range .Values.extraVolumes -}}
  {{- if has .name (list "configuration" "certificate") -}}
    {{- $mistakes = append $mistakes (printf "extraVolumes: the name %s is taken by the chart" .name) -}}
  {{- end -}}
{{- end -}}
{{- range .Values.extraVolumeMounts -}}
  {{- if regexMatch "^/(etc(/postern(-tls)?(/.*)?)?)?$" (clean .mountPath) -}}
    {{- $mistakes = append $mistakes (printf "extraVolumeMounts: the path %s is taken by the chart" .mountPath) -}}
  {{- end -}}
{{- end -}}
{{- range .Values.extraEnv -}}
  {{- if eq .name "POD_NAME" -}}
    {{- $mistakes = append $mistakes "extraEnv: the variable POD_NAME is set by the chart" -}}
  {{- end -}}
{{- end -}}
{{- /* A program from an earlier version of postern plugins --output=helm does not name its feature gates. */ -}}
{{- with $program.featureGates -}}
  {{- range $gate := keys ($.Values.featureGates | default dict) | sortAlpha -}}
    {{- if not (has $gate $program.featureGates) -}}
      {{- $mistakes = append $mistakes (printf "featureGates: there is no feature gate %s; there are: %s. If it is yours, set the value program" $gate (join ", " $program.featureGates)) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- $replicas := int .Values.replicas -}}
{{- $min := toString .Values.podDisruptionBudget.minAvailable -}}
{{- $available := int (trimSuffix "%" $min) -}}
{{- if hasSuffix "%" $min -}}
  {{- /* Kubernetes rounds up. */ -}}
  {{- $available = int (div (add (mul $available $replicas) 99) 100) -}}
{{- end -}}
{{- if and .Values.podDisruptionBudget.enabled (gt $replicas 1) (ge $available $replicas) -}}
  {{- $mistakes = append $mistakes (printf "podDisruptionBudget.minAvailable: %s needs all %d replicas (percentages are rounded up), so that no drain of their nodes would end: raise replicas, or disable the budget" $min $replicas) -}}
{{- end -}}
{{- $flags := dict
  "--enable-admission-plugins" "the value plugins"
  "--disable-admission-plugins" "the value disabledPlugins"
  "--admission-control" "the value plugins"
  "--allow-no-plugins" "the value allowNoPlugins"
  "--api-server-plugins" "the value apiServerPlugins"
  "--admission-control-config-file" "the value configuration"
  "--feature-gates" "the value featureGates"
  "--exempt-namespaces" "the value exemptNamespaces"
  "--failure-policy" "the value failurePolicy"
  "--webhook-timeout" "the value webhookTimeoutSeconds"
  "--authorization-cache-ttl" "the value authorizationCacheTTL"
  "--webhook-namespace" "the namespace of the release"
  "--secure-port" "the value securePort"
  "--health-bind-address" "the value healthPort"
  "--tls-cert-file" "the values of certificates"
  "--tls-private-key-file" "the values of certificates"
  "--ca-bundle-file" "the values of certificates"
  "--metrics-authorization" "the value metrics.authorization"
-}}
{{- $others := dict
  "--cert-dir" "all replicas share one CA, in a Secret"
  "--webhook-service" "the webhooks call the Service of the release"
  "--kubeconfig" "Postern uses the service account of the release"
-}}
{{- range .Values.extraArgs -}}
  {{- $flag := first (splitList "=" .) -}}
  {{- with get $flags $flag -}}
    {{- $mistakes = append $mistakes (printf "extraArgs: %s is set by %s" $flag .) -}}
  {{- end -}}
  {{- with get $others $flag -}}
    {{- $mistakes = append $mistakes (printf "extraArgs: %s cannot be used with the chart: %s" $flag .) -}}
  {{- end -}}
{{- end -}}
{{- with $mistakes }}{{ fail (join "\n" .) }}{{ end -}}
{{- end }}
