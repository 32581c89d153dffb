// A small OpenID Connect issuer for the tests of kubelogin: device codes, passwords and refresh tokens. The first line that
// it prints is its URL. It listens on a loopback address and keeps everything in memory.
//
// The test is the user who logs in: it reads the codes that wait at /test/codes, and enters one at /test/approve.
package main

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	clientID = "kubernetes"
	username = "jane"
	password = "correct horse"
	keyID    = "1"
)

type login struct {
	deviceCode string
	idToken    string
	approved   bool
}

type counts struct {
	Codes     int `json:"codes"`
	Logins    int `json:"logins"`
	Refreshes int `json:"refreshes"`
}

type issuer struct {
	url      string
	key      *rsa.PrivateKey
	lifetime time.Duration

	mutex         sync.Mutex
	logins        map[string]*login // by user code
	refreshTokens map[string]bool
	issued        int
	counts        counts
}

func main() {
	lifetime := flag.Duration("lifetime", time.Hour, "lifetime of ID tokens")
	flag.Parse()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	issuer := &issuer{
		url:           "http://" + listener.Addr().String(),
		key:           key,
		lifetime:      *lifetime,
		logins:        map[string]*login{},
		refreshTokens: map[string]bool{},
	}
	http.HandleFunc("GET /.well-known/openid-configuration", issuer.discovery)
	http.HandleFunc("GET /keys", issuer.keys)
	http.HandleFunc("POST /device", issuer.locked(issuer.device))
	http.HandleFunc("POST /token", issuer.locked(issuer.token))
	http.HandleFunc("GET /test/codes", issuer.locked(issuer.codes))
	http.HandleFunc("GET /test/prepare", issuer.locked(issuer.prepare))
	http.HandleFunc("GET /test/approve", issuer.locked(issuer.approve))
	http.HandleFunc("GET /test/revoke", issuer.locked(issuer.revoke))
	http.HandleFunc("GET /test/counts", issuer.locked(issuer.count))
	fmt.Println(issuer.url)
	log.Fatal(http.Serve(listener, nil))
}

func (i *issuer) locked(handler http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		i.mutex.Lock()
		defer i.mutex.Unlock()
		handler(w, r)
	}
}

func (i *issuer) discovery(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, map[string]any{
		"issuer":                                i.url,
		"authorization_endpoint":                i.url + "/authorize",
		"device_authorization_endpoint":         i.url + "/device",
		"token_endpoint":                        i.url + "/token",
		"jwks_uri":                              i.url + "/keys",
		"response_types_supported":              []string{"code"},
		"subject_types_supported":               []string{"public"},
		"id_token_signing_alg_values_supported": []string{"RS256"},
	})
}

func (i *issuer) keys(w http.ResponseWriter, _ *http.Request) {
	public := i.key.PublicKey
	exponent := []byte{byte(public.E >> 16), byte(public.E >> 8), byte(public.E)}
	answer(w, http.StatusOK, map[string]any{"keys": []any{map[string]string{
		"kty": "RSA", "use": "sig", "alg": "RS256", "kid": keyID,
		"n": encode(public.N.Bytes()), "e": encode(exponent),
	}}})
}

// device starts a login with a code (RFC 8628).
func (i *issuer) device(w http.ResponseWriter, r *http.Request) {
	if r.FormValue("client_id") != clientID {
		refuse(w, "invalid_client")
		return
	}
	i.counts.Codes++
	code := fmt.Sprintf("WDJB-%04d", i.counts.Codes)
	deviceCode := rand.Text()
	i.logins[code] = &login{deviceCode: deviceCode}
	answer(w, http.StatusOK, map[string]any{
		"device_code":      deviceCode,
		"user_code":        code,
		"verification_uri": i.url + "/activate",
		"expires_in":       600,
		"interval":         1,
	})
}

func (i *issuer) token(w http.ResponseWriter, r *http.Request) {
	switch r.FormValue("grant_type") {
	case "urn:ietf:params:oauth:grant-type:device_code":
		i.ofDevice(w, r.FormValue("device_code"))
	case "password":
		if r.FormValue("username") != username || r.FormValue("password") != password {
			refuse(w, "invalid_grant")
			return
		}
		i.counts.Logins++
		i.tokens(w, i.mint())
	case "refresh_token":
		token := r.FormValue("refresh_token")
		if !i.refreshTokens[token] {
			refuse(w, "invalid_grant")
			return
		}
		// Each refresh token is valid once.
		delete(i.refreshTokens, token)
		i.counts.Refreshes++
		i.tokens(w, i.mint())
	default:
		refuse(w, "unsupported_grant_type")
	}
}

func (i *issuer) ofDevice(w http.ResponseWriter, deviceCode string) {
	for code, login := range i.logins {
		if login.deviceCode != deviceCode {
			continue
		}
		if !login.approved {
			refuse(w, "authorization_pending")
			return
		}
		delete(i.logins, code)
		i.counts.Logins++
		i.tokens(w, login.idToken)
		return
	}
	refuse(w, "expired_token")
}

func (i *issuer) tokens(w http.ResponseWriter, idToken string) {
	refreshToken := rand.Text()
	i.refreshTokens[refreshToken] = true
	answer(w, http.StatusOK, map[string]any{
		"access_token":  rand.Text(),
		"token_type":    "Bearer",
		"expires_in":    int(i.lifetime.Seconds()),
		"refresh_token": refreshToken,
		"id_token":      idToken,
	})
}

// mint makes an ID token.
func (i *issuer) mint() string {
	i.issued++
	now := time.Now()
	head := part(map[string]string{"alg": "RS256", "kid": keyID, "typ": "JWT"})
	body := part(map[string]any{
		"iss": i.url, "aud": clientID, "sub": username, "jti": fmt.Sprint(i.issued),
		"iat": now.Unix(), "exp": now.Add(i.lifetime).Unix(),
	})
	digest := sha256.Sum256([]byte(head + "." + body))
	signature, err := rsa.SignPKCS1v15(rand.Reader, i.key, crypto.SHA256, digest[:])
	if err != nil {
		log.Fatal(err)
	}
	return head + "." + body + "." + encode(signature)
}

// codes lists the codes that wait for a user, one in a line.
func (i *issuer) codes(w http.ResponseWriter, _ *http.Request) {
	for code := range i.logins {
		fmt.Fprintln(w, code)
	}
}

// prepare returns the token that a login will get, so that an API server can accept it before the login ends.
func (i *issuer) prepare(w http.ResponseWriter, r *http.Request) {
	if login := i.logins[r.FormValue("code")]; login != nil {
		login.idToken = i.mint()
		fmt.Fprint(w, login.idToken)
		return
	}
	http.NotFound(w, r)
}

// approve is the user who enters the code in a browser.
func (i *issuer) approve(w http.ResponseWriter, r *http.Request) {
	login := i.logins[r.FormValue("code")]
	if login == nil {
		http.NotFound(w, r)
		return
	}
	if login.idToken == "" {
		login.idToken = i.mint()
	}
	login.approved = true
}

// revoke ends all sessions: no refresh token is valid any longer.
func (i *issuer) revoke(http.ResponseWriter, *http.Request) {
	clear(i.refreshTokens)
}

func (i *issuer) count(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, i.counts)
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(body); err != nil {
		log.Print(err)
	}
}

func refuse(w http.ResponseWriter, reason string) {
	answer(w, http.StatusBadRequest, map[string]string{"error": reason})
}

func part(fields any) string {
	text, err := json.Marshal(fields)
	if err != nil {
		log.Fatal(err)
	}
	return encode(text)
}

func encode(bytes []byte) string {
	return base64.RawURLEncoding.EncodeToString(bytes)
}
