package fake

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A RealBroker is a credbroker process with one provider, corp, whose plugin prints what the test sets.
type RealBroker struct {
	// The path of the socket, in a private directory.
	Socket string

	t         testing.TB
	program   string
	directory string
	process   *exec.Cmd
	log       *bytes.Buffer
}

// NewRealBroker starts the program that the variable CREDBROKER_BINARY names. It skips the test without it.
func NewRealBroker(t testing.TB) *RealBroker {
	t.Helper()
	directory, err := os.MkdirTemp("", "broker")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(directory) })
	b := &RealBroker{
		t: t, program: Program(t, "CREDBROKER_BINARY"), directory: directory,
		Socket: filepath.Join(directory, "run", "broker.sock"),
	}
	b.write("plugin", 0o755, "#!/bin/sh\necho run >>"+directory+"/runs\ncat "+directory+"/answer\n")
	b.Define("")
	t.Cleanup(b.Stop)
	return b
}

// Plugin returns the path of the plugin, for a client that runs it itself.
func (b *RealBroker) Plugin() string { return filepath.Join(b.directory, "plugin") }

// Define writes the definition of the provider with more settings, one to a line. A broker that runs follows it.
func (b *RealBroker) Define(settings string) {
	b.t.Helper()
	b.write("config.yaml", 0o600, fmt.Sprintf(`apiVersion: credbroker.io/v1alpha1
kind: BrokerConfig
providers:
  - name: corp
    execConfig:
      apiVersion: client.authentication.k8s.io/v1
      command: %s
      interactiveMode: Never
      provideClusterInfo: false
    %s
`, filepath.Join(b.directory, "plugin"), settings))
}

// Program returns the absolute path in a variable. It skips the test without it.
func Program(t testing.TB, variable string) string {
	t.Helper()
	return named(t, variable, "a program")
}

// named returns the absolute path in a variable that names what. It skips the test without it.
func named(t testing.TB, variable, what string) string {
	t.Helper()
	path := os.Getenv(variable)
	if path == "" {
		message := fmt.Sprintf("SKIPPED: %s: %s does not name %s", t.Name(), variable, what)
		fmt.Fprintln(os.Stderr, message)
		t.Skip(message)
	}
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Start starts the process, and waits until it listens.
func (b *RealBroker) Start() {
	b.t.Helper()
	b.log = &bytes.Buffer{}
	b.process = exec.Command(b.program, "serve", "--config", filepath.Join(b.directory, "config.yaml"), "--socket", b.Socket)
	b.process.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + b.directory}
	b.process.Stderr = b.log
	if err := b.process.Start(); err != nil {
		b.t.Fatal(err)
	}
	// The process says only in its log that it listens, and healthcheck waits for nothing.
	for deadline := time.Now().Add(30 * time.Second); ; {
		err := exec.Command(b.program, "healthcheck", "--socket", b.Socket).Run()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("the broker does not start: %v\n%s", err, b.log)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// Stop ends the process.
func (b *RealBroker) Stop() {
	if b.process == nil {
		return
	}
	b.process.Process.Signal(syscall.SIGTERM)
	b.process.Wait()
	b.process = nil
}

// Print sets what the plugin prints from its next run on: status of an ExecCredential.
func (b *RealBroker) Print(status map[string]any) {
	b.t.Helper()
	answer, err := json.Marshal(map[string]any{
		"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status,
	})
	if err != nil {
		b.t.Fatal(err)
	}
	b.write("answer.new", 0o600, string(answer))
	if err := os.Rename(filepath.Join(b.directory, "answer.new"), filepath.Join(b.directory, "answer")); err != nil {
		b.t.Fatal(err)
	}
}

// Break makes the plugin fail until the next Print.
func (b *RealBroker) Break() {
	b.t.Helper()
	if err := os.Remove(filepath.Join(b.directory, "answer")); err != nil {
		b.t.Fatal(err)
	}
}

// Refresh makes the broker run the plugin now.
func (b *RealBroker) Refresh() {
	b.t.Helper()
	b.run("refresh")
}

// Evict makes the broker evict the credential.
func (b *RealBroker) Evict() {
	b.t.Helper()
	b.run("evict")
}

func (b *RealBroker) run(command string) {
	b.t.Helper()
	if output, err := exec.Command(b.program, command, "corp", "--socket", b.Socket).CombinedOutput(); err != nil {
		b.t.Fatalf("%v: %s", err, output)
	}
}

// Runs returns how often the plugin was run.
func (b *RealBroker) Runs() int {
	runs, _ := os.ReadFile(filepath.Join(b.directory, "runs"))
	return strings.Count(string(runs), "\n")
}

func (b *RealBroker) write(name string, mode os.FileMode, text string) {
	b.t.Helper()
	path := filepath.Join(b.directory, name)
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		b.t.Fatal(err)
	}
	// The umask may have removed bits.
	if err := os.Chmod(path, mode); err != nil {
		b.t.Fatal(err)
	}
}
