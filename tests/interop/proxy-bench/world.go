package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const patience = time.Minute

type programs struct{ plane, kubectl, broker, shim, kubeconfigProxy string }

// Where requests go: the API server, the same far away, and one without work.
const (
	near = "near"
	far  = "far"
	bare = "bare"
)

type world struct {
	programs
	rounds  int
	dir     string
	servers map[string]string
	// Of the API server, and good for a plugin of `original` to print.
	token string
	// The kubeconfig that the broker reads, and one with the same contexts and the token.
	original, static string
	socket           string
	processes        []*process
}

func newWorld(programs programs, rounds int) (*world, error) {
	dir, err := os.MkdirTemp("", "proxy-bench-")
	if err != nil {
		return nil, err
	}
	w := &world{programs: programs, rounds: rounds, dir: dir, token: "benchmark"}
	if err := w.prepare(); err != nil {
		w.end()
		return nil, err
	}
	return w, nil
}

func (w *world) prepare() error {
	server, err := os.ReadFile(filepath.Join(w.plane, "server"))
	if err != nil {
		return err
	}
	w.servers = map[string]string{near: strings.TrimSpace(string(server))}
	own, err := os.Executable()
	if err != nil {
		return err
	}
	_, w.servers[far], err = w.addressed("relay", own, "relay", strings.TrimPrefix(w.servers[near], "https://"))
	if err != nil {
		return err
	}
	if _, w.servers[bare], err = w.addressed("fake", own, "fake", w.plane); err != nil {
		return err
	}
	w.servers[far], w.servers[bare] = "https://"+w.servers[far], "https://"+w.servers[bare]
	user := object{"user": "benchmark", "groups": list{"admins"}}
	if _, err := w.write(filepath.Join(w.plane, "tokens", w.token), user); err != nil {
		return err
	}
	plugin := object{"exec": object{
		"apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never",
		"command": filepath.Join(w.plane, "plugin"), "args": list{w.plane, "token", "benchmark", "admins", "36000"},
	}}
	if w.original, err = w.kubeconfig("original", plugin); err != nil {
		return err
	}
	if w.static, err = w.kubeconfig("static", object{"token": w.token}); err != nil {
		return err
	}
	w.socket = filepath.Join(w.dir, "broker.sock")
	config, err := w.config("broker", nil)
	if err != nil {
		return err
	}
	broker, err := w.start("broker", nil, w.broker, "serve", "--config", config, "--socket", w.socket)
	if err != nil {
		return err
	}
	return broker.ready(func() bool { return w.run(w.broker, "healthcheck", "--socket", w.socket) == nil })
}

type (
	object = map[string]any
	list   = []any
)

func (w *world) write(file string, content any) (string, error) {
	if !filepath.IsAbs(file) {
		file = filepath.Join(w.dir, file)
	}
	text, err := json.Marshal(content)
	if err != nil {
		return "", err
	}
	return file, os.WriteFile(file, text, 0o600)
}

// A kubeconfig with a context for each server.
func (w *world) kubeconfig(name string, user object) (string, error) {
	var clusters, contexts list
	for name, server := range w.servers {
		cluster := object{"server": server, "certificate-authority": filepath.Join(w.plane, "ca.pem")}
		clusters = append(clusters, object{"name": name, "cluster": cluster})
		contexts = append(contexts, object{"name": name, "context": object{"cluster": name, "user": "user"}})
	}
	return w.write(name+".kubeconfig", object{
		"apiVersion": "v1", "kind": "Config", "clusters": clusters, "contexts": contexts,
		"users": list{object{"name": "user", "user": user}}, "current-context": near,
	})
}

func (w *world) config(name string, proxy object) (string, error) {
	config := object{"apiVersion": "credbroker.io/v1alpha1", "kind": "BrokerConfig", "kubeconfigs": list{w.original}}
	if proxy != nil {
		config["proxy"] = proxy
	}
	return w.write(name+".yaml", config)
}

// Ends all processes.
func (w *world) end() {
	for _, process := range w.processes {
		process.stop()
	}
	os.RemoveAll(w.dir)
}

func (w *world) environment() []string {
	path := filepath.Dir(w.shim) + ":" + os.Getenv("PATH")
	return []string{"PATH=" + path, "HOME=" + w.dir, "KUBECONFIG=" + w.original}
}

// Runs a program to its end.
func (w *world) run(program string, arguments ...string) error {
	_, err := w.output(program, arguments...)
	return err
}

func (w *world) output(program string, arguments ...string) ([]byte, error) {
	command := exec.Command(program, arguments...)
	command.Env = w.environment()
	output, err := command.Output()
	if failed, ok := err.(*exec.ExitError); ok {
		err = fmt.Errorf("%s %s: %w: %s", program, arguments[0], err, failed.Stderr)
	}
	return output, err
}

type process struct {
	name    string
	command *exec.Cmd
	log     string
	ended   chan struct{}
}

func (w *world) start(name string, stdout *os.File, program string, arguments ...string) (*process, error) {
	log, err := os.CreateTemp(w.dir, name+"-*.log")
	if err != nil {
		return nil, err
	}
	defer log.Close()
	command := exec.Command(program, arguments...)
	command.Env, command.Stdout, command.Stderr = w.environment(), log, log
	if stdout != nil {
		command.Stdout = stdout
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	p := &process{name, command, log.Name(), make(chan struct{})}
	w.processes = append(w.processes, p)
	go func() {
		command.Wait()
		close(p.ended)
	}()
	return p, nil
}

// A process that prints its address, in the last word of its first line.
func (w *world) addressed(name, program string, arguments ...string) (*process, string, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, "", err
	}
	process, err := w.start(name, write, program, arguments...)
	write.Close()
	if err != nil {
		return nil, "", err
	}
	line, err := bufio.NewReader(read).ReadString('\n')
	if err != nil {
		return nil, "", process.failed()
	}
	words := strings.Fields(line)
	return process, words[len(words)-1], nil
}

func (p *process) failed() error {
	text, _ := os.ReadFile(p.log)
	return fmt.Errorf("%s does not start: %s", p.name, bytes.TrimSpace(text))
}

// Waits until it is.
func (p *process) ready(is func() bool) error {
	for began := time.Now(); !is(); time.Sleep(20 * time.Millisecond) {
		select {
		case <-p.ended:
			return p.failed()
		default:
		}
		if time.Since(began) > patience {
			return p.failed()
		}
	}
	return nil
}

func (p *process) stop() {
	p.command.Process.Kill()
	<-p.ended
}

func listens(network, address string) func() bool {
	return func() bool {
		connection, err := net.Dial(network, address)
		if err == nil {
			connection.Close()
		}
		return err == nil
	}
}

func freePort() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer listener.Close()
	return listener.Addr().String(), nil
}

// Creates an object of the API server, as its administrator.
func (w *world) create(path string, content object) error {
	client := w.direct(1).connect(near)
	text, err := json.Marshal(content)
	if err != nil {
		return err
	}
	request, err := http.NewRequest(http.MethodPost, client.base+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+w.token)
	request.Header.Set("Content-Type", "application/json")
	answer, err := client.http.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusCreated && answer.StatusCode != http.StatusConflict {
		return fmt.Errorf("POST %s: %s", path, answer.Status)
	}
	return nil
}
