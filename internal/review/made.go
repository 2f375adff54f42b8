package review

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/postern-dev/postern/internal/objects"
)

// child is an object that a controller makes from another one. Object is a pointer to a type of k8s.io/api with its kind.
type child struct {
	object metav1.Object
	kind   schema.GroupVersionKind
	// controller is the service account in kube-system that makes it. It is empty for what the author of the other object makes.
	controller string
	// path is the field of the other object that it is made from.
	path string
}

// children decides what controllers make from an object, and what they make from that. They make nothing from an object that is denied.
// An object between a workload and its pods has a result only if it is not admitted.
func (r *Reviewer) children(ctx context.Context, of *decision) ([]Result, error) {
	makes, ok := makers[schema.FromAPIVersionAndKind(of.APIVersion, of.Kind)]
	if !ok || of.Verdict == Denied {
		return nil, nil
	}
	made, err := makes(of)
	if err != nil {
		return nil, err
	}
	var out []Result
	for _, c := range made {
		results, err := r.child(ctx, of, c)
		if err != nil {
			return nil, err
		}
		out = append(out, results...)
	}
	return out, nil
}

func (r *Reviewer) child(ctx context.Context, of *decision, c *child) ([]Result, error) {
	by := r.User
	if c.controller != "" {
		by = controllerUser(c.controller)
	}
	raw, err := json.Marshal(c.object)
	if err != nil {
		return nil, err
	}
	d, err := r.decide(ctx, &admissionv1.AdmissionRequest{
		Operation: admissionv1.Create, Kind: metav1.GroupVersionKind(c.kind), Namespace: of.Namespace, UserInfo: by, Object: runtime.RawExtension{Raw: raw},
	})
	if err != nil {
		return nil, err
	}
	d.Name, d.File, d.Line = c.object.GetName(), of.File, of.Line
	if d.Name == "" {
		d.Name = nameOf(c.object.GetGenerateName())
	}
	d.Path, d.Of = c.path, of.Kind+" "+cache.NewObjectName(of.Namespace, of.Name).String()
	if of.Of != "" {
		d.Path, d.Of = joined(of.Path, c.path), of.Of
	}
	if _, owns := makers[c.kind]; !owns || d.Verdict == Denied {
		return []Result{d.Result}, nil
	}
	// Plugins look up the owners of a pod.
	if d.uid, err = r.Cluster.Add(c.kind, d.object); err != nil {
		return nil, err
	}
	next, err := r.children(ctx, d)
	if d.Verdict == Admitted {
		return next, err
	}
	return append([]Result{d.Result}, next...), err
}

func joined(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "." + b
}

// controllerUser returns the user of a controller whose kube-controller-manager runs with --use-service-account-credentials.
func controllerUser(name string) authenticationv1.UserInfo {
	return authenticationv1.UserInfo{
		Username: serviceaccount.MakeUsername(metav1.NamespaceSystem, name),
		Groups:   append(serviceaccount.MakeGroupNames(metav1.NamespaceSystem), user.AllAuthenticated),
	}
}

// The controllers that make objects, by their service accounts.
//
// Upstream: k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/bootstrappolicy/controller_policy.go.
const (
	deploymentController  = "deployment-controller"
	replicaSetController  = "replicaset-controller"
	replicationController = "replication-controller"
	statefulSetController = "statefulset-controller"
	daemonSetController   = "daemon-set-controller"
	jobController         = "job-controller"
	cronJobController     = "cronjob-controller"
)

// hash stands for the hash of a template in the name of a ReplicaSet.
const hash = "xxxxxxxxxx"

// makers return what is made from an object of a kind.
var makers = map[schema.GroupVersionKind]func(of *decision) ([]*child, error){
	appsv1.SchemeGroupVersion.WithKind("Deployment"): making(func(d *appsv1.Deployment) []*child { return []*child{replicaSetOf(d)} }),
	appsv1.SchemeGroupVersion.WithKind("ReplicaSet"): making(func(rs *appsv1.ReplicaSet) []*child {
		return podsOf(rs, &rs.Spec.Template, replicaSetController, "spec.template", asIs)
	}),
	appsv1.SchemeGroupVersion.WithKind("StatefulSet"): making(func(s *appsv1.StatefulSet) []*child {
		pods := podsOf(s, &s.Spec.Template, statefulSetController, "spec.template", func(p *corev1.Pod) { completeStateful(p, s) })
		return append(claimsOf(s), pods...)
	}),
	appsv1.SchemeGroupVersion.WithKind("DaemonSet"): making(func(d *appsv1.DaemonSet) []*child {
		return podsOf(d, &d.Spec.Template, daemonSetController, "spec.template", completeDaemon)
	}),
	batchv1.SchemeGroupVersion.WithKind("Job"): making(func(j *batchv1.Job) []*child {
		return podsOf(j, &j.Spec.Template, jobController, "spec.template", func(p *corev1.Pod) { completeJob(p, j) })
	}),
	batchv1.SchemeGroupVersion.WithKind("CronJob"): making(func(c *batchv1.CronJob) []*child { return []*child{jobOf(c)} }),
	corev1.SchemeGroupVersion.WithKind("ReplicationController"): making(func(rc *corev1.ReplicationController) []*child {
		if rc.Spec.Template == nil {
			return nil
		}
		return podsOf(rc, rc.Spec.Template, replicationController, "spec.template", asIs)
	}),
	corev1.SchemeGroupVersion.WithKind("PodTemplate"): making(func(t *corev1.PodTemplate) []*child {
		return podsOf(t, &t.Template, "", "template", func(p *corev1.Pod) { p.OwnerReferences = nil })
	}),
}

// workload is an object of k8s.io/api from which others are made.
type workload interface {
	metav1.Object
	runtime.Object
}

// making returns a maker for objects of one type.
func making[T workload](f func(T) []*child) func(*decision) ([]*child, error) {
	return func(of *decision) ([]*child, error) {
		kind := schema.FromAPIVersionAndKind(of.APIVersion, of.Kind)
		obj, err := objects.Decode(of.object, metav1.GroupVersionKind(kind))
		if err != nil {
			return nil, err
		}
		o, ok := obj.(T)
		if !ok {
			return nil, fmt.Errorf("a %T is no %s", obj, kind.Kind)
		}
		o.SetUID(of.uid)
		o.GetObjectKind().SetGroupVersionKind(kind)
		return f(o), nil
	}
}

// asIs completes nothing.
func asIs(*corev1.Pod) {}

// podsOf returns the pod that a controller makes from a template of its workload.
func podsOf(owner workload, template *corev1.PodTemplateSpec, controller, path string, complete func(*corev1.Pod)) []*child {
	p := podOf(owner, owner.GetObjectKind().GroupVersionKind(), template)
	complete(p)
	return []*child{{object: p, kind: corev1.SchemeGroupVersion.WithKind("Pod"), controller: controller, path: path}}
}

// podOf returns the pod that a controller makes from a template.
//
// Upstream: k8s.io/kubernetes/pkg/controller GetPodFromTemplate.
func podOf(owner metav1.Object, kind schema.GroupVersionKind, template *corev1.PodTemplateSpec) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		GenerateName: owner.GetName() + "-", Namespace: owner.GetNamespace(), Labels: maps.Clone(template.Labels), Annotations: maps.Clone(template.Annotations),
		Finalizers: template.Finalizers, OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, kind)},
	}}
	if len(validation.NameIsDNSSubdomain(p.GenerateName, true)) > 0 {
		p.GenerateName = owner.GetName()
	}
	template.Spec.DeepCopyInto(&p.Spec)
	p.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	return p
}

// replicaSetOf returns the ReplicaSet of a Deployment. Of the annotations of the controller, it has the revision.
//
// Upstream: k8s.io/kubernetes/pkg/controller/deployment, getNewReplicaSet and its annotationsToSkip.
func replicaSetOf(d *appsv1.Deployment) *child {
	kind := appsv1.SchemeGroupVersion.WithKind("ReplicaSet")
	annotations := withKey(d.Annotations, "deployment.kubernetes.io/revision", "1")
	delete(annotations, corev1.LastAppliedConfigAnnotation)
	rs := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Name: d.Name + "-" + hash, Namespace: d.Namespace, Annotations: annotations, Labels: withKey(d.Spec.Template.Labels, appsv1.DefaultDeploymentUniqueLabelKey, hash),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment"))},
		},
		Spec: appsv1.ReplicaSetSpec{Replicas: d.Spec.Replicas, MinReadySeconds: d.Spec.MinReadySeconds, Template: *d.Spec.Template.DeepCopy()},
	}
	if d.Spec.Selector != nil {
		rs.Spec.Selector = d.Spec.Selector.DeepCopy()
		rs.Spec.Selector.MatchLabels = withKey(rs.Spec.Selector.MatchLabels, appsv1.DefaultDeploymentUniqueLabelKey, hash)
	}
	rs.Spec.Template.Labels = withKey(rs.Spec.Template.Labels, appsv1.DefaultDeploymentUniqueLabelKey, hash)
	rs.SetGroupVersionKind(kind)
	return &child{object: rs, kind: kind, controller: deploymentController}
}

// minutes stands for the minutes since 1970 in the name of a Job.
const minutes = "xxxxxxxx"

// jobOf returns a Job of a CronJob, without the annotation that has the time.
//
// Upstream: k8s.io/kubernetes/pkg/controller/cronjob, getJobFromTemplate2.
func jobOf(c *batchv1.CronJob) *child {
	kind := batchv1.SchemeGroupVersion.WithKind("Job")
	template := c.Spec.JobTemplate
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Name: c.Name + "-" + minutes, Namespace: c.Namespace, Labels: maps.Clone(template.Labels), Annotations: maps.Clone(template.Annotations),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(c, batchv1.SchemeGroupVersion.WithKind("CronJob"))},
		},
		Spec: *template.Spec.DeepCopy(),
	}
	job.SetGroupVersionKind(kind)
	return &child{object: job, kind: kind, controller: cronJobController, path: "spec.jobTemplate"}
}

// firstPod returns the name of the first pod of a StatefulSet.
func firstPod(s *appsv1.StatefulSet) string {
	first := 0
	if s.Spec.Ordinals != nil {
		first = int(s.Spec.Ordinals.Start)
	}
	return s.Name + "-" + strconv.Itoa(first)
}

// completeStateful completes the first pod of a StatefulSet.
//
// Upstream: k8s.io/kubernetes/pkg/controller/statefulset, newStatefulSetPod and updateStorage.
func completeStateful(p *corev1.Pod, s *appsv1.StatefulSet) {
	p.Name, p.GenerateName = firstPod(s), ""
	p.Labels = withKey(p.Labels, appsv1.StatefulSetPodNameLabel, p.Name)
	p.Labels = withKey(p.Labels, appsv1.PodIndexLabel, strings.TrimPrefix(p.Name, s.Name+"-"))
	p.Labels = withKey(p.Labels, appsv1.ControllerRevisionHashLabelKey, s.Name+"-"+hash)
	p.Spec.Hostname, p.Spec.Subdomain = p.Name, s.Spec.ServiceName
	claimed := map[string]bool{}
	var volumes []corev1.Volume
	for _, claim := range s.Spec.VolumeClaimTemplates {
		claimed[claim.Name] = true
		volumes = append(volumes, corev1.Volume{Name: claim.Name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name + "-" + p.Name},
		}})
	}
	for _, v := range p.Spec.Volumes {
		if !claimed[v.Name] {
			volumes = append(volumes, v)
		}
	}
	p.Spec.Volumes = volumes
}

// claimsOf returns the claims of the first pod of a StatefulSet.
//
// Upstream: k8s.io/kubernetes/pkg/controller/statefulset, getPersistentVolumeClaims.
func claimsOf(s *appsv1.StatefulSet) []*child {
	var out []*child
	for i := range s.Spec.VolumeClaimTemplates {
		claim := s.Spec.VolumeClaimTemplates[i].DeepCopy()
		claim.Name, claim.Namespace = claim.Name+"-"+firstPod(s), s.Namespace
		if s.Spec.Selector != nil {
			for key, value := range s.Spec.Selector.MatchLabels {
				claim.Labels = withKey(claim.Labels, key, value)
			}
		}
		kind := corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim")
		claim.SetGroupVersionKind(kind)
		out = append(out, &child{object: claim, kind: kind, controller: statefulSetController, path: fmt.Sprintf("spec.volumeClaimTemplates[%d]", i)})
	}
	return out
}

// completeDaemon adds the tolerations of a DaemonSet's pod. Its node affinity, which names the node, is left out.
//
// Upstream: k8s.io/kubernetes/pkg/controller/daemon/util, AddOrUpdateDaemonPodTolerations.
func completeDaemon(p *corev1.Pod) {
	p.Labels = withKey(p.Labels, appsv1.ControllerRevisionHashLabelKey, hash)
	p.Labels = withKey(p.Labels, "pod-template-generation", "1")
	add := func(key string, effect corev1.TaintEffect) {
		t := corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: effect}
		for i := range p.Spec.Tolerations {
			if p.Spec.Tolerations[i].MatchToleration(&t) {
				p.Spec.Tolerations[i] = t
				return
			}
		}
		p.Spec.Tolerations = append(p.Spec.Tolerations, t)
	}
	add(corev1.TaintNodeNotReady, corev1.TaintEffectNoExecute)
	add(corev1.TaintNodeUnreachable, corev1.TaintEffectNoExecute)
	add(corev1.TaintNodeDiskPressure, corev1.TaintEffectNoSchedule)
	add(corev1.TaintNodeMemoryPressure, corev1.TaintEffectNoSchedule)
	add(corev1.TaintNodePIDPressure, corev1.TaintEffectNoSchedule)
	add(corev1.TaintNodeUnschedulable, corev1.TaintEffectNoSchedule)
	if p.Spec.HostNetwork {
		add(corev1.TaintNodeNetworkUnavailable, corev1.TaintEffectNoSchedule)
	}
}

// completeJob completes a pod of a Job. The API server adds the labels to the template of a Job when it is created.
//
// Upstream: k8s.io/kubernetes/pkg/registry/batch/job generateSelector, and k8s.io/kubernetes/pkg/controller/job manageJob.
func completeJob(p *corev1.Pod, job *batchv1.Job) {
	if !ptr.Deref(job.Spec.ManualSelector, false) {
		for _, key := range []string{batchv1.JobNameLabel, "job-name"} {
			p.Labels = withKey(p.Labels, key, job.Name)
		}
		for _, key := range []string{batchv1.ControllerUidLabel, "controller-uid"} {
			p.Labels = withKey(p.Labels, key, string(job.UID))
		}
	}
	p.Finalizers = append(p.Finalizers, batchv1.JobTrackingFinalizer)
	if ptr.Deref(job.Spec.CompletionMode, batchv1.NonIndexedCompletion) != batchv1.IndexedCompletion {
		return
	}
	p.Annotations = withKey(p.Annotations, batchv1.JobCompletionIndexAnnotation, "0")
	p.Labels = withKey(p.Labels, batchv1.JobCompletionIndexAnnotation, "0")
	p.Spec.Hostname = job.Name + "-0"
	p.GenerateName = job.Name + "-0-"
	const name = "JOB_COMPLETION_INDEX"
	env := corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{
		FieldRef: &corev1.ObjectFieldSelector{FieldPath: fmt.Sprintf("metadata.labels['%s']", batchv1.JobCompletionIndexAnnotation)},
	}}
	for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			if !slices.ContainsFunc(list[i].Env, func(e corev1.EnvVar) bool { return e.Name == name }) {
				list[i].Env = append(list[i].Env, env)
			}
		}
	}
}

// withKey returns a copy of labels or annotations with one more.
func withKey(labels map[string]string, key, value string) map[string]string {
	out := maps.Clone(labels)
	if out == nil {
		out = map[string]string{}
	}
	out[key] = value
	return out
}
