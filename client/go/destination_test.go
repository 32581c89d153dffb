package credbroker

import (
	"net/url"
	"testing"
)

func of(t *testing.T, text string) destination {
	t.Helper()
	parsed, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return destinationOf(parsed)
}

func TestTheSameServerInAnotherSpellingIsEqual(t *testing.T) {
	for _, pair := range [][2]string{
		{"https://paris.example", "https://PARIS.example:443/path"},
		{"https://paris.example", "https://paris.example./"},
		{"https://user@paris.example:6443", "https://paris.example:6443"},
		{"https://[::1]", "https://[0::0:1]:443"},
	} {
		other, _ := url.Parse(pair[1])
		if a, b := of(t, pair[0]), of(t, pair[1]); a != b || !a.isServerOf(other) {
			t.Errorf("%s is not %s", a, b)
		}
	}
}

func TestAnotherSchemeHostOrPortIsAnotherServer(t *testing.T) {
	for _, pair := range [][2]string{
		{"https://paris.example", "http://paris.example:443"},
		{"https://paris.example", "https://paris.example:6443"},
		{"https://paris.example", "https://paris.example.evil.example"},
		{"https://paris.example", "https://paris.example@evil.example"},
		{"https://paris.example", "https://paris.example.."},
		{"https://127.0.0.1", "https://[::ffff:127.0.0.1]"},
		{"https://127.0.0.1", "https://localhost"},
		{"https://paris.example", "/version"},
	} {
		other, _ := url.Parse(pair[1])
		if a, b := of(t, pair[0]), of(t, pair[1]); a == b || a.isServerOf(other) {
			t.Errorf("%s is %s", a, b)
		}
	}
}

func TestADestinationShowsNoSecret(t *testing.T) {
	for text, want := range map[string]string{
		"https://user:c4n4ry@example.com:8080/c4n4ry?c4n4ry": "https://example.com:8080",
		"https://[0:0:0:0:0:0:0:1]:6443":                     "https://[::1]:6443",
		"/version":                                           "a URL without a scheme or host",
	} {
		if got := of(t, text).String(); got != want {
			t.Errorf("%s instead of %s", got, want)
		}
	}
}
