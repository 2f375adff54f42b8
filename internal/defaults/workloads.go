package defaults

import (
	"maps"
	"math"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func workloadRules(r rules) {
	on(r, func(c *corev1.ReplicationController) {
		set(&c.Spec.Replicas, 1)
		if c.Spec.Template != nil {
			inheritLabels(&c.Spec.Selector, c.Spec.Template.Labels)
			inheritLabels(&c.Labels, c.Spec.Template.Labels)
		}
	})
	on(r, func(s *appsv1.ReplicaSetSpec) { set(&s.Replicas, 1) })
	on(r, setDeployment)
	on(r, setDaemonSet)
	on(r, setStatefulSet)
	// These are what the conversion sets, also in an update of another type.
	on(r, func(u *appsv1.RollingUpdateDeployment) {
		set(&u.MaxUnavailable, intstr.FromInt32(0))
		set(&u.MaxSurge, intstr.FromInt32(0))
	})
	on(r, func(u *appsv1.RollingUpdateDaemonSet) {
		set(&u.MaxUnavailable, intstr.FromInt32(0))
		set(&u.MaxSurge, intstr.FromInt32(0))
	})
	on(r, func(u *appsv1.RollingUpdateStatefulSetStrategy) { set(&u.Partition, 0) })
	on(r, setJob)
	on(r, func(p *batchv1.PodFailurePolicyOnPodConditionsPattern) { fill(&p.Status, corev1.ConditionTrue) })
	on(r, func(s *batchv1.CronJobSpec) {
		fill(&s.ConcurrencyPolicy, batchv1.AllowConcurrent)
		set(&s.Suspend, false)
		set(&s.SuccessfulJobsHistoryLimit, 3)
		set(&s.FailedJobsHistoryLimit, 1)
	})
	on(r, func(a *autoscalingv1.HorizontalPodAutoscaler) {
		set(&a.Spec.MinReplicas, 1)
		// This version has the metrics of v2 in an annotation.
		if _, has := a.Annotations["autoscaling.alpha.kubernetes.io/metrics"]; !has {
			set(&a.Spec.TargetCPUUtilizationPercentage, 80)
		}
	})
	on(r, setAutoscaler)
}

// inheritLabels copies labels to an object without any.
func inheritLabels(labels *map[string]string, from map[string]string) {
	if len(*labels) == 0 {
		*labels = maps.Clone(from)
	}
}

func setDeployment(s *appsv1.DeploymentSpec) {
	set(&s.Replicas, 1)
	set(&s.RevisionHistoryLimit, 10)
	set(&s.ProgressDeadlineSeconds, 600)
	fill(&s.Strategy.Type, appsv1.RollingUpdateDeploymentStrategyType)
	if s.Strategy.Type == appsv1.RollingUpdateDeploymentStrategyType {
		set(&s.Strategy.RollingUpdate, appsv1.RollingUpdateDeployment{})
		set(&s.Strategy.RollingUpdate.MaxUnavailable, intstr.FromString("25%"))
		set(&s.Strategy.RollingUpdate.MaxSurge, intstr.FromString("25%"))
	}
}

func setDaemonSet(d *appsv1.DaemonSet) {
	if _, has := d.Annotations[appsv1.DeprecatedTemplateGeneration]; !has {
		put(&d.Annotations, appsv1.DeprecatedTemplateGeneration, "0")
	}
	s := &d.Spec
	set(&s.RevisionHistoryLimit, 10)
	fill(&s.UpdateStrategy.Type, appsv1.RollingUpdateDaemonSetStrategyType)
	if s.UpdateStrategy.Type == appsv1.RollingUpdateDaemonSetStrategyType {
		set(&s.UpdateStrategy.RollingUpdate, appsv1.RollingUpdateDaemonSet{})
		set(&s.UpdateStrategy.RollingUpdate.MaxUnavailable, intstr.FromInt32(1))
	}
}

func setStatefulSet(s *appsv1.StatefulSetSpec) {
	set(&s.Replicas, 1)
	set(&s.RevisionHistoryLimit, 10)
	fill(&s.PodManagementPolicy, appsv1.OrderedReadyPodManagement)
	set(&s.PersistentVolumeClaimRetentionPolicy, appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{})
	fill(&s.PersistentVolumeClaimRetentionPolicy.WhenDeleted, appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	fill(&s.PersistentVolumeClaimRetentionPolicy.WhenScaled, appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	if s.UpdateStrategy.Type == "" {
		s.UpdateStrategy.Type = appsv1.RollingUpdateStatefulSetStrategyType
		set(&s.UpdateStrategy.RollingUpdate, appsv1.RollingUpdateStatefulSetStrategy{})
	}
	// With an explicit type, an absent rollingUpdate stays absent.
	if update := s.UpdateStrategy.RollingUpdate; update != nil && s.UpdateStrategy.Type == appsv1.RollingUpdateStatefulSetStrategyType {
		set(&update.MaxUnavailable, intstr.FromInt32(1))
	}
	for i := range s.VolumeClaimTemplates {
		s.VolumeClaimTemplates[i].TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"}
	}
}

// setJob sets the defaults that the job template of a CronJob does not get.
func setJob(j *batchv1.Job) {
	s := &j.Spec
	inheritLabels(&j.Labels, s.Template.Labels)
	if s.Parallelism == nil {
		set(&s.Completions, 1)
	}
	set(&s.Parallelism, 1)
	if s.BackoffLimitPerIndex != nil {
		set(&s.BackoffLimit, math.MaxInt32)
	}
	set(&s.BackoffLimit, 6)
	set(&s.CompletionMode, batchv1.NonIndexedCompletion)
	set(&s.Suspend, false)
	set(&s.ManualSelector, false)
	if s.PodFailurePolicy != nil {
		set(&s.PodReplacementPolicy, batchv1.Failed)
	}
	set(&s.PodReplacementPolicy, batchv1.TerminatingOrFailed)
}

func setAutoscaler(s *autoscalingv2.HorizontalPodAutoscalerSpec) {
	set(&s.MinReplicas, 1)
	if len(s.Metrics) == 0 {
		target := autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: new(int32(80))}
		s.Metrics = []autoscalingv2.MetricSpec{{
			Type:     autoscalingv2.ResourceMetricSourceType,
			Resource: &autoscalingv2.ResourceMetricSource{Name: corev1.ResourceCPU, Target: target},
		}}
	}
	if s.Behavior != nil {
		percent := autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PercentScalingPolicy, Value: 100, PeriodSeconds: 15}
		pods := autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PodsScalingPolicy, Value: 4, PeriodSeconds: 15}
		setScaling(&s.Behavior.ScaleUp, pods, percent)
		set(&s.Behavior.ScaleUp.StabilizationWindowSeconds, 0)
		setScaling(&s.Behavior.ScaleDown, percent)
	}
}

func setScaling(rules **autoscalingv2.HPAScalingRules, policies ...autoscalingv2.HPAScalingPolicy) {
	set(rules, autoscalingv2.HPAScalingRules{})
	set(&(*rules).SelectPolicy, autoscalingv2.MaxChangePolicySelect)
	if (*rules).Policies == nil {
		(*rules).Policies = policies
	}
}
