package credbroker

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/credbroker/credbroker/client/go/internal/fake"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// A compared client is another process, so that its processor time is its own and that of the shims that it starts.
type compared struct {
	Library        bool
	Server, Socket string
	CA             []byte
	Shim           string
}

// What the process reports when its standard input ends.
type comparedReport struct {
	Requests, Failed, Lists, Events, Twice int
}

// A comparedServer is the API server of the tests, or a real one.
type comparedServer interface {
	Address() string
	Authorities() []byte
	Client(testing.TB, string) fake.Pair
	AcceptToken(string)
	RejectToken(string)
	AcceptCertificate(fake.Pair)
	RejectCertificate(fake.Pair)
	Create(string)
	// How many connections were opened. Counting them in the client would change how client-go shares them.
	Dials() string
}

const (
	// How often the credential is replaced, and the time between.
	comparedRotations = 4
	comparedInterval  = 3 * time.Second
	// A real API server remembers for ten seconds that it has accepted a token.
	comparedIntervalOfReal = 15 * time.Second
	comparedEvents         = 50
	comparedDocument       = "../../docs/go.md"
	comparedVariable       = "CREDBROKER_TEST_COMPARED"
)

func TestMain(m *testing.M) {
	if encoded := os.Getenv(comparedVariable); encoded != "" {
		if err := runCompared(encoded); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// The same client with this package, and with client-go's own exec plugins and the shim. The rows are written to docs/go.md
// with BLESS=1. What this package promises is asserted; the other numbers are client-go's, and differ from run to run.
func TestBesideTheExecPluginsOfClientGo(t *testing.T) {
	shim := fake.Program(t, "CREDBROKER_EXEC")
	rows := compareAll(t, shim, comparedInterval, func() comparedServer { return fake.NewAPIServer(t, false) })
	if os.Getenv("BLESS") == "1" {
		bless(t, "compared", rows)
	}
}

// The same with a real API server, which takes two minutes.
func TestBesideTheExecPluginsOfClientGoWithARealAPIServer(t *testing.T) {
	shim := fake.Program(t, "CREDBROKER_EXEC")
	// Objects stay, so each client has its own server.
	rows := compareAll(t, shim, comparedIntervalOfReal, func() comparedServer { return fake.NewRealAPIServer(t) })
	if os.Getenv("BLESS") == "1" {
		bless(t, "compared with a real server", rows)
	}
}

func compareAll(t *testing.T, shim string, interval time.Duration, start func() comparedServer) []string {
	t.Helper()
	var rows []string
	for _, certificates := range []bool{false, true} {
		for _, library := range []bool{false, true} {
			row, report := compareOnce(t, start(), interval, library, certificates, shim)
			rows = append(rows, row)
			t.Log(row)
			if library && (report.Failed > 0 || report.Twice > 0 || report.Events != comparedEvents || report.Lists != 1) {
				t.Errorf("%+v", report)
			}
		}
	}
	return rows
}

func compareOnce(
	t *testing.T, server comparedServer, interval time.Duration, library, certificates bool, shim string,
) (string, comparedReport) {
	t.Helper()
	real := fake.NewRealBroker(t)
	next := func(i int) (func(), map[string]any) {
		if certificates {
			pair := server.Client(t, "ann")
			server.AcceptCertificate(pair)
			return func() { server.RejectCertificate(pair) }, certificateStatus(pair)
		}
		token := fmt.Sprintf("token-%d", i)
		server.AcceptToken(token)
		return func() { server.RejectToken(token) }, tokenStatus(token)
	}
	revoke, status := next(0)
	real.Print(status)
	real.Start()
	encoded, err := json.Marshal(compared{Library: library, Server: server.Address(), Socket: real.Socket, CA: server.Authorities(), Shim: shim})
	if err != nil {
		t.Fatal(err)
	}
	client := exec.Command(os.Args[0])
	client.Env = append(os.Environ(), comparedVariable+"="+string(encoded))
	client.Stderr = os.Stderr
	stdin, err := client.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := client.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Start(); err != nil {
		t.Fatal(err)
	}
	output := bufio.NewReader(stdout)
	if line, err := output.ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatal(line, err)
	}
	start := time.Now()
	created := 0
	for i := range comparedRotations {
		revokeNext, status := next(i + 1)
		real.Print(status)
		real.Refresh()
		// The old credential is accepted for as long as the new one takes to arrive: a rotation, and then a revocation.
		for deadline := start.Add(time.Duration(i+1) * interval); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
			if revoke != nil && time.Until(deadline) < interval*4/5 {
				revoke()
				revoke = nil
			}
			if created < comparedEvents*(i+1)/comparedRotations {
				server.Create(fmt.Sprintf("event-%d", created))
				created++
			}
		}
		revoke = revokeNext
	}
	stdin.Close()
	var report comparedReport
	if err := json.NewDecoder(output).Decode(&report); err != nil {
		t.Fatal(err)
	}
	if err := client.Wait(); err != nil {
		t.Fatal(err)
	}
	usage := client.ProcessState.SysUsage().(*syscall.Rusage)
	processor := time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	kind, name := "token", "client-go with the shim"
	if certificates {
		kind = "certificate"
	}
	if library {
		name = "this module"
	}
	row := fmt.Sprintf("| %s, %s | %d | %d | %s | %d | %d | %.0f ms |", kind, name, report.Requests, report.Failed,
		server.Dials(), report.Lists-1, comparedEvents-report.Events,
		float64(processor.Milliseconds())*1000/float64(max(report.Requests, 1)))
	return row, report
}

// runCompared is the other process: an informer, and two loops of requests until its standard input ends.
func runCompared(encoded string) error {
	var of compared
	if err := json.Unmarshal([]byte(encoded), &of); err != nil {
		return err
	}
	config, closeBroker, err := of.config()
	if err != nil {
		return err
	}
	defer closeBroker()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	seen, err := startInformer(ctx, config)
	if err != nil {
		return err
	}
	var requests, failed atomic.Int64
	var loops sync.WaitGroup
	for range 2 {
		loops.Go(func() {
			for ctx.Err() == nil {
				response, err := client.Get(of.Server + "/version")
				requests.Add(1)
				if err != nil || response.StatusCode != http.StatusOK {
					failed.Add(1)
				}
				if err == nil {
					_, _ = io.Copy(io.Discard, response.Body)
					response.Body.Close()
				}
				time.Sleep(2 * time.Millisecond)
			}
		})
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	// For the last events of an informer that has to connect again.
	for range 100 {
		if names, _ := seen.counts(); names == comparedEvents {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	names, twice := seen.counts()
	cancel()
	loops.Wait()
	report := comparedReport{
		Requests: int(requests.Load()), Failed: int(failed.Load()),
		Lists: int(seen.lists.Load()), Events: names, Twice: twice,
	}
	return json.NewEncoder(os.Stdout).Encode(report)
}

func (c compared) config() (*rest.Config, func(), error) {
	base := &rest.Config{Host: c.Server, QPS: -1, TLSClientConfig: rest.TLSClientConfig{CAData: c.CA}}
	if !c.Library {
		base.ExecProvider = &clientcmdapi.ExecConfig{
			Command: c.Shim, Args: []string{"--provider", "corp", "--socket", c.Socket},
			APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
		}
		return base, func() {}, nil
	}
	broker, err := New(WithSocket(c.Socket), WithDrain(testDrain))
	if err != nil {
		return nil, nil, err
	}
	config, err := broker.Authenticate(context.Background(), Provider("corp"), base)
	return config, broker.Close, err
}

// bless replaces the rows of the table in the document.
func bless(t *testing.T, name string, rows []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.FromSlash(comparedDocument))
	if err != nil {
		t.Fatal(err)
	}
	begin, end := "<!-- "+name+": begin -->\n", "<!-- "+name+": end -->"
	before, rest, found := strings.Cut(string(text), begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatal("docs/go.md has no place for the table")
	}
	table := "| Credential, client | Requests | Failed | Connections | Lists again | Events lost | Processor time for 1,000 requests |\n" +
		"|---|---|---|---|---|---|---|\n" + strings.Join(rows, "\n") + "\n"
	if err := os.WriteFile(comparedDocument, []byte(before+begin+table+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}
