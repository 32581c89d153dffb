package credbroker

import (
	"strings"
	"testing"
)

func TestTheVariableWinsOverThePlaces(t *testing.T) {
	const user = "/run/user/1000/credbroker/credbroker.sock"
	for _, c := range []struct {
		variable, runtime string
		uid               int
		want              string
	}{
		{"/variable", "/run/user/1000", 1000, "/variable"},
		{"unix:/variable", "/run/user/1000", 1000, "/variable"},
		{"unix:///variable", "", 1000, "/variable"},
		{"here.sock", "", 1000, "here.sock"},
		{"", "/run/user/1000", 1000, user + " or " + SystemSocket},
		{"", "/run/user/1000", 0, SystemSocket},
		{"", "", 1000, SystemSocket},
		{"", "run", 1000, SystemSocket},
	} {
		found, err := locate(variables(map[string]string{"CREDBROKER_SOCKET": c.variable, "XDG_RUNTIME_DIR": c.runtime}), c.uid)
		if err != nil || strings.Join(found.candidates, " or ") != c.want {
			t.Errorf("%+v: %v, %v", c, found, err)
		}
	}
}

func TestAnInvalidAddressIsRefused(t *testing.T) {
	for _, text := range []string{"unix://", "unix://relative/path", "unix:relative", "tcp://127.0.0.1:80", "/", "..", "a\x00b"} {
		_, err := locate(variables(map[string]string{"CREDBROKER_SOCKET": text}), 1000)
		if err == nil || !strings.Contains(err.Error(), "CREDBROKER_SOCKET is") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestTheUIDOfTheServer(t *testing.T) {
	for _, text := range []string{"0", "1000"} {
		found, err := locate(variables(map[string]string{"CREDBROKER_BROKER_UID": text}), 1000)
		if err != nil || found.brokerUID == nil {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, text := range []string{"-1", "+1", "root", "4294967295", "4294967296", "1.0", " 1"} {
		_, err := locate(variables(map[string]string{"CREDBROKER_BROKER_UID": text}), 1000)
		if err == nil || !strings.Contains(err.Error(), "not a valid uid") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func variables(values map[string]string) func(string) string {
	return func(name string) string { return values[name] }
}
