// Volumes that are directories of the one real node, on which this runs: made and removed here, without a pod for each.
package main

import (
	"context"
	"flag"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

type directories struct{ root string }

func (all directories) Provision(_ context.Context, asked controller.ProvisionOptions) (*core.PersistentVolume, controller.ProvisioningState, error) {
	path := filepath.Join(all.root, asked.PVName)
	if err := os.MkdirAll(path, 0o777); err != nil {
		return nil, controller.ProvisioningFinished, err
	}
	// Open to all, whatever the umask: the pods that use it share no user.
	if err := os.Chmod(path, 0o777); err != nil {
		return nil, controller.ProvisioningFinished, err
	}
	kind := core.HostPathDirectory
	volume := &core.PersistentVolume{
		ObjectMeta: meta.ObjectMeta{Name: asked.PVName},
		Spec: core.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: *asked.StorageClass.ReclaimPolicy,
			AccessModes:                   asked.PVC.Spec.AccessModes,
			Capacity:                      core.ResourceList{core.ResourceStorage: asked.PVC.Spec.Resources.Requests[core.ResourceStorage]},
			PersistentVolumeSource:        core.PersistentVolumeSource{HostPath: &core.HostPathVolumeSource{Path: path, Type: &kind}},
		},
	}
	if asked.SelectedNodeName != "" {
		volume.Spec.NodeAffinity = on(asked.SelectedNodeName)
	}
	return volume, controller.ProvisioningFinished, nil
}

func on(node string) *core.VolumeNodeAffinity {
	here := core.NodeSelectorRequirement{Key: core.LabelHostname, Operator: core.NodeSelectorOpIn, Values: []string{node}}
	term := core.NodeSelectorTerm{MatchExpressions: []core.NodeSelectorRequirement{here}}
	return &core.VolumeNodeAffinity{Required: &core.NodeSelector{NodeSelectorTerms: []core.NodeSelectorTerm{term}}}
}

func (all directories) Delete(_ context.Context, volume *core.PersistentVolume) error {
	return os.RemoveAll(filepath.Join(all.root, volume.Name))
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "how to reach the API server")
	name := flag.String("name", "", "what storage classes call this provisioner")
	root := flag.String("directory", "", "where volumes are made")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		klog.Fatalf("cannot provision volumes: %v", err)
	}
	client := kubernetes.NewForConfigOrDie(config)
	alone := controller.LeaderElection(false)
	controller.NewProvisionController(ctx, client, *name, directories{*root}, alone).Run(ctx)
}
