package credbroker

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// bless replaces the rows of a table in docs/go.md.
func bless(t *testing.T, name string, rows []string) {
	t.Helper()
	head := "| Credential, client | Requests | Failed | Connections | Relists | Events lost | Processor time for 1,000 requests | Ratio |\n" +
		"|---|---|---|---|---|---|---|---|\n"
	blessIn(t, comparedDocument, name, head, rows)
}

// blessIn replaces a table in a document.
func blessIn(t *testing.T, document, name, head string, rows []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.FromSlash(document))
	if err != nil {
		t.Fatal(err)
	}
	begin, end := "<!-- "+name+": begin -->\n", "<!-- "+name+": end -->"
	before, rest, found := strings.Cut(string(text), begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatal(document + " has no place for the table")
	}
	table := fmt.Sprintf("Measured on %s, %d processors (%s), %s.\n\n", time.Now().UTC().Format(time.DateOnly), runtime.NumCPU(), processorName(), runtime.Version()) +
		head + strings.Join(rows, "\n") + "\n"
	if err := os.WriteFile(document, []byte(before+begin+table+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

// processorName returns what the kernel calls the processors, or their architecture.
func processorName() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	_, after, found := strings.Cut(string(text), "model name\t: ")
	if !found {
		return runtime.GOARCH
	}
	name, _, _ := strings.Cut(after, "\n")
	return name
}
