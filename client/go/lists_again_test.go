package credbroker

import (
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/credbroker/credbroker/client/go/internal/fake"
)

const listedDocument = "../../docs/maintainers.md"

// How often an informer lists again, with each way to a credential. It is rare, so CREDBROKER_ROTATIONS says how many rotations
// there are: 100 take twenty minutes. BLESS=1 writes the table of docs/maintainers.md.
func TestListsAgainOfEachWayToACredential(t *testing.T) {
	shim := fake.Program(t, "CREDBROKER_EXEC")
	rotations, err := strconv.Atoi(os.Getenv("CREDBROKER_ROTATIONS"))
	if err != nil {
		rotations = comparedRotations
	}
	var rows []string
	for _, certificates := range []bool{false, true} {
		for _, way := range []struct {
			name    string
			library bool
			shim    string
		}{{"client-go with the plugin", false, ""}, {"client-go with the shim", false, shim}, {"this module", true, ""}} {
			client := exchanged{library: way.library, certificates: certificates, shim: way.shim}
			_, report := compareOnce(t, fake.NewAPIServer(t, false), rotations, listedInterval, client)
			kind := "token"
			if certificates {
				kind = "certificate"
			}
			row := fmt.Sprintf("| %s, %s | %d | %d | %d | %d | %d |", kind, way.name, rotations, report.Lists-1,
				comparedEvents-report.Events, report.Requests, report.Failed)
			rows = append(rows, row)
			t.Log(row)
			if way.library && (report.Failed > 0 || report.Events != comparedEvents || report.Lists != 1) {
				t.Errorf("%+v", report)
			}
		}
	}
	if os.Getenv("BLESS") == "1" {
		head := "| Credential, client | Rotations | Relists | Events lost | Requests | Failed |\n|---|---|---|---|---|---|\n"
		blessIn(t, listedDocument, "lists again", head, rows)
	}
}
