// Command plugin is an exec credential plugin: it gets an ExecCredential from the issuer on the node, in the version that its
// caller asks for. The issuer logs the name of the program and of the pod.
package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

const issuer = "http://10.200.0.1:8001"

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	var credential struct {
		APIVersion string            `json:"apiVersion"`
		Kind       string            `json:"kind"`
		Status     map[string]string `json:"status"`
	}
	if err := json.Unmarshal([]byte(os.Getenv("KUBERNETES_EXEC_INFO")), &credential); err != nil {
		return fmt.Errorf("KUBERNETES_EXEC_INFO: %w", err)
	}
	pod, err := os.Hostname()
	if err != nil {
		return err
	}
	client := http.Client{Timeout: 10 * time.Second}
	answer, err := client.Get(fmt.Sprintf("%s/%s/%s", issuer, filepath.Base(os.Args[0]), pod))
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("the issuer answers %s", answer.Status)
	}
	if err := json.NewDecoder(answer.Body).Decode(&credential.Status); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(credential)
}
