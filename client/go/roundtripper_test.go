package credbroker

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"testing"

	pb "github.com/credbroker/credbroker/client/go/credbrokerv1"
	"github.com/credbroker/credbroker/client/go/internal/fake"
	"k8s.io/client-go/rest"
)

func TestTheNextRequestHasTheNewToken(t *testing.T) {
	for _, http1 := range []bool{false, true} {
		t.Run(fmt.Sprintf("http1=%v", http1), func(t *testing.T) {
			f := newFleet(t, http1)
			client := f.client(t)
			for _, generation := range []string{"1", "2", "3"} {
				f.server.AcceptToken("token-" + generation)
				f.rotate(t, token(generation))
				if status := get(t, client, f.server.URL+"/version"); status != http.StatusOK {
					t.Fatal(status)
				}
			}
			if got, want := f.server.Identities(), []string{"token-1", "token-2", "token-3"}; !reflect.DeepEqual(got, want) {
				t.Errorf("%v was sent", got)
			}
			if dials := f.server.Counts().Dials; dials != 1 {
				t.Errorf("%d connections: a token needs no other one", dials)
			}
		})
	}
}

func TestClientsOfOneConfigShareConnections(t *testing.T) {
	f := newFleet(t, false)
	for range 3 {
		if status := get(t, f.client(t), f.server.URL+"/version"); status != http.StatusOK {
			t.Fatal(status)
		}
	}
	if dials := f.server.Counts().Dials; dials != 1 {
		t.Errorf("%d connections", dials)
	}
}

func TestARejectionIsReportedAndARequestWithoutABodySentOnceMore(t *testing.T) {
	f := newFleet(t, false)
	client := f.client(t)
	f.fake.OnReport(func(string) *pb.WatchCredentialResponse {
		f.server.AcceptToken("token-2")
		return &pb.WatchCredentialResponse{Credential: token("2"), Cluster: at(f.server)}
	})
	f.server.RejectToken("token-1")
	if status := get(t, client, f.server.URL+"/version"); status != http.StatusOK {
		t.Error(status)
	}
	if reports := f.fake.Reports(); !reflect.DeepEqual(reports, []string{"1"}) {
		t.Errorf("%v was reported", reports)
	}
	if counts := f.server.Counts(); counts.Requests != 2 || counts.Unauthorized != 1 {
		t.Errorf("%+v", counts)
	}
}

func TestARequestWithABodyIsNotSentAgain(t *testing.T) {
	f := newFleet(t, false)
	client := f.client(t)
	f.fake.OnReport(func(string) *pb.WatchCredentialResponse {
		f.server.AcceptToken("token-2")
		return &pb.WatchCredentialResponse{Credential: token("2"), Cluster: at(f.server)}
	})
	f.server.RejectToken("token-1")
	created := request(t, http.MethodPost, f.server.URL+"/api/v1/namespaces/default/configmaps", strings.NewReader("{}"))
	if status := do(t, client, created); status != http.StatusUnauthorized {
		t.Error(status)
	}
	f.await(t, "2")
	if counts := f.server.Counts(); counts.Requests != 1 {
		t.Errorf("%+v", counts)
	}
}

func TestARequestWithAnEmptyBodyCanBeSentAgain(t *testing.T) {
	for _, body := range []io.Reader{nil, strings.NewReader(""), bytes.NewReader(nil)} {
		if !isRepeatable(request(t, http.MethodGet, "/", body)) {
			t.Errorf("%T", body)
		}
	}
	if isRepeatable(request(t, http.MethodGet, "/", strings.NewReader("x"))) {
		t.Error("a body cannot be sent again")
	}
}

func TestManyRejectionsAreOneReport(t *testing.T) {
	f := newFleet(t, false)
	client := f.client(t)
	f.server.RejectToken("token-1")
	// The broker has nothing newer: the answer is the server's.
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			if status := get(t, client, f.server.URL+"/version"); status != http.StatusUnauthorized {
				t.Error(status)
			}
		})
	}
	group.Wait()
	if reports := f.fake.Reports(); len(reports) == 0 || len(reports) > 2 {
		t.Errorf("%v was reported", reports)
	}
}

func TestARequestWithItsOwnCredentialIsSentAsItIs(t *testing.T) {
	f := newFleet(t, false)
	own := request(t, http.MethodGet, f.server.URL+"/version", nil)
	own.Header.Set("Authorization", "Bearer other")
	if status := do(t, f.client(t), own); status != http.StatusUnauthorized {
		t.Error(status)
	}
	if seen, reports := f.server.Identities(), f.fake.Reports(); !reflect.DeepEqual(seen, []string{"other"}) || len(reports) > 0 {
		t.Errorf("%v was sent, %v was reported", seen, reports)
	}
}

func TestACredentialIsNotSentToAnotherServer(t *testing.T) {
	f := newFleet(t, false)
	other := fake.NewAPIServer(t, false)
	_, err := f.client(t).Do(request(t, http.MethodGet, f.server.URL+"/redirect?to="+other.URL, nil))
	var refused *OtherServerError
	if !errors.As(err, &refused) {
		t.Fatal(err)
	}
	if seen := other.Identities(); len(seen) > 0 {
		t.Errorf("%v was sent", seen)
	}
	config := f.config(t)
	config.Host = other.URL
	if _, err := rest.HTTPClientFor(config); err == nil || !strings.Contains(err.Error(), "another Host") {
		t.Error(err)
	}
}
