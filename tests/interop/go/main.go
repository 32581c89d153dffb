// Command inventory reaches clusters as a controller does that uses cluster-inventory-api's library: one provider file,
// read once, and one client for each ClusterProfile. For each profile it prints one line of JSON.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"
	"sigs.k8s.io/cluster-inventory-api/pkg/access"
)

// An outcome says what the requests to one cluster came to.
type outcome struct {
	Profile  string   `json:"profile"`
	Statuses []int    `json:"statuses"`
	Errors   []string `json:"errors"`
}

func main() {
	providerFile := access.SetupProviderFileFlag()
	path := flag.String("path", "/version", "what to GET")
	gets := flag.Int("gets", 1, "how often, for each profile")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "inventory [flags] CLUSTERPROFILE.json...")
		flag.PrintDefaults()
	}
	flag.Parse()

	providers, err := access.NewFromFile(*providerFile)
	if err != nil {
		fail(err)
	}
	answers := json.NewEncoder(os.Stdout)
	for _, file := range flag.Args() {
		profile, err := read(file)
		if err != nil {
			fail(err)
		}
		if err := answers.Encode(reach(providers, profile, *path, *gets)); err != nil {
			fail(err)
		}
	}
}

func read(file string) (*v1alpha1.ClusterProfile, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	profile := &v1alpha1.ClusterProfile{}
	return profile, json.Unmarshal(text, profile)
}

func reach(providers *access.Config, profile *v1alpha1.ClusterProfile, path string, gets int) outcome {
	reached := outcome{Profile: profile.Namespace + "/" + profile.Name, Statuses: []int{}, Errors: []string{}}
	config, err := providers.BuildConfigFromCP(profile)
	if err != nil {
		reached.Errors = append(reached.Errors, err.Error())
		return reached
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		reached.Errors = append(reached.Errors, err.Error())
		return reached
	}
	for range gets {
		status, err := get(client, strings.TrimSuffix(config.Host, "/")+path)
		if err != nil {
			reached.Errors = append(reached.Errors, err.Error())
		} else {
			reached.Statuses = append(reached.Statuses, status)
		}
	}
	return reached
}

func get(client *http.Client, url string) (int, error) {
	response, err := client.Get(url)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	// Read to its end, or the connection is not used again.
	_, err = io.Copy(io.Discard, response.Body)
	return response.StatusCode, err
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
