package credbroker

import (
	"os"
	"strings"
	"testing"
)

// The examples are compiled, so the code of the document is too.
func TestTheCodeOfTheDocumentIsThatOfTheExamples(t *testing.T) {
	var examples string
	for _, file := range []string{
		"example_test.go", "kubeconfig_test.go", "controllerruntime/example_test.go", "examples/kueue/access.go", "examples/kueue/access_test.go",
		"examples/multicluster/example_test.go",
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		examples += withoutIndentation(string(text))
	}
	document, err := os.ReadFile(comparedDocument)
	if err != nil {
		t.Skipf("SKIPPED: this test needs the repository around the module: %v", err)
	}
	blocks := strings.Split(string(document), "```go\n")[1:]
	for _, block := range blocks {
		code, _, _ := strings.Cut(block, "```")
		if !strings.Contains(examples, strings.TrimSpace(withoutIndentation(code))) {
			t.Errorf("no example has this code:\n%s", code)
		}
	}
	if len(blocks) == 0 {
		t.Error("the document has no code")
	}
}

func withoutIndentation(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, strings.TrimSpace(line))
	}
	return strings.Join(lines, "\n")
}
