package credbroker

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/credbroker/credbroker/client/go/internal/fake"
)

// A compared client is another process, so that its processor time is its own and that of the shims that it starts.
type compared struct {
	Library        bool
	Server, Socket string
	CA             []byte
	// The exec plugin of client-go and its arguments.
	Exec []string
}

// What the process reports when its standard input ends.
type comparedReport struct {
	Requests, Failed, Lists, Events, Twice int
	// Processor time for 1,000 requests.
	milliseconds float64
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
	// The same for lists again, which are rare. A watch of less than a second counts as an error to client-go.
	listedInterval = 2 * time.Second
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
		var withShim float64
		for _, library := range []bool{false, true} {
			client := exchanged{library: library, certificates: certificates, shim: shim}
			row, report := compareOnce(t, start(), comparedRotations, interval, client)
			if !library {
				withShim = report.milliseconds
			}
			// The ratio says more than the times: other programs on the machine change both.
			row += fmt.Sprintf(" %.0f ms | %.2f |", report.milliseconds, report.milliseconds/withShim)
			rows = append(rows, row)
			t.Log(row)
			if library && (report.Failed > 0 || report.Twice > 0 || report.Events != comparedEvents || report.Lists != 1) {
				t.Errorf("%+v", report)
			}
		}
	}
	return rows
}

// An exchanged client differs from the others in its way to a credential, or in the kind of the credential.
type exchanged struct {
	library, certificates bool
	// Without a shim, client-go runs the plugin.
	shim string
}

func compareOnce(
	t *testing.T, server comparedServer, rotations int, interval time.Duration, of exchanged,
) (string, comparedReport) {
	t.Helper()
	library, certificates := of.library, of.certificates
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
	plugin := []string{real.Plugin()}
	if of.shim != "" {
		plugin = []string{of.shim, "--provider", "corp", "--socket", real.Socket}
	}
	encoded, err := json.Marshal(compared{
		Library: library, Server: server.Address(), Socket: real.Socket, CA: server.Authorities(), Exec: plugin,
	})
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
	for i := range rotations {
		revokeNext, status := next(i + 1)
		real.Print(status)
		real.Refresh()
		// The old credential is accepted for as long as the new one takes to arrive: a rotation, and then a revocation.
		for deadline := start.Add(time.Duration(i+1) * interval); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
			if revoke != nil && time.Until(deadline) < interval*4/5 {
				revoke()
				revoke = nil
			}
			if created < comparedEvents*(i+1)/rotations {
				server.Create(fmt.Sprintf("event-%d", created))
				created++
			}
		}
		revoke = revokeNext
	}
	// On a busy machine, not all were in time.
	for ; created < comparedEvents; created++ {
		server.Create(fmt.Sprintf("event-%d", created))
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
	report.milliseconds = float64(processor.Microseconds()) / float64(max(report.Requests, 1))
	row := fmt.Sprintf("| %s, %s | %d | %d | %s | %d | %d |", kind, name, report.Requests, report.Failed,
		server.Dials(), report.Lists-1, comparedEvents-report.Events)
	return row, report
}
