package credbroker

import (
	"bytes"
	"fmt"

	pb "github.com/credbroker/credbroker/client/go/credbrokerv1"
)

// A Cluster says how to reach an API server: the fields of spec.cluster in client.authentication.k8s.io/v1. Printing it
// shows neither the proxy, which may have a password, nor the config of the plugin.
type Cluster struct {
	// URL of the API server.
	Server string
	// Name that the certificate of the server must have. Empty: the host of Server.
	TLSServerName string
	// Do not verify the certificate of the server.
	InsecureSkipTLSVerify bool
	// PEM bundle of the certificate authorities of the server. Empty: those of the system.
	CertificateAuthorityData []byte
	// Do not request compressed responses.
	DisableCompression bool

	// Functions, so that no format verb reads them.
	proxyURL func() string
	config   func() []byte
}

// ProxyURL returns the proxy for requests to the server, which may contain a password. Empty: none.
func (c *Cluster) ProxyURL() string {
	if c == nil || c.proxyURL == nil {
		return ""
	}
	return c.proxyURL()
}

// WithProxyURL returns a copy with this proxy.
func (c Cluster) WithProxyURL(proxy string) Cluster {
	c.proxyURL = func() string { return proxy }
	return c
}

// PluginConfig returns the JSON of the extension client.authentication.k8s.io/exec of the cluster. Empty: none.
func (c *Cluster) PluginConfig() []byte {
	if c == nil || c.config == nil {
		return nil
	}
	return c.config()
}

// WithPluginConfig returns a copy with this JSON for the plugin.
func (c Cluster) WithPluginConfig(config []byte) Cluster {
	config = bytes.Clone(config)
	c.config = func() []byte { return bytes.Clone(config) }
	return c
}

// String returns the URL of the server.
func (c Cluster) String() string { return c.Server }

// GoString returns the same as String.
func (c Cluster) GoString() string { return fmt.Sprintf("credbroker.Cluster(%q)", c.Server) }

// sameEndpoint says whether requests go to the same place and trust the same authorities. The fields for the plugin and
// the compression do not count.
func (c *Cluster) sameEndpoint(other *Cluster) bool {
	if c == nil || other == nil {
		return c == other
	}
	return c.Server == other.Server &&
		c.TLSServerName == other.TLSServerName &&
		c.InsecureSkipTLSVerify == other.InsecureSkipTLSVerify &&
		bytes.Equal(c.CertificateAuthorityData, other.CertificateAuthorityData) &&
		c.ProxyURL() == other.ProxyURL()
}

func (c *Cluster) equal(other *Cluster) bool {
	if c == nil || other == nil {
		return c == other
	}
	return c.sameEndpoint(other) &&
		c.DisableCompression == other.DisableCompression &&
		bytes.Equal(c.PluginConfig(), other.PluginConfig())
}

func clusterFrom(message *pb.Cluster) *Cluster {
	if message == nil {
		return nil
	}
	cluster := Cluster{
		Server:                   message.GetServer(),
		TLSServerName:            message.GetTlsServerName(),
		InsecureSkipTLSVerify:    message.GetInsecureSkipTlsVerify(),
		CertificateAuthorityData: message.GetCertificateAuthorityData(),
		DisableCompression:       message.GetDisableCompression(),
	}
	if message.ProxyUrl != nil {
		cluster = cluster.WithProxyURL(message.GetProxyUrl())
	}
	if message.Config != nil {
		cluster = cluster.WithPluginConfig(message.GetConfig())
	}
	return &cluster
}

func (c *Cluster) toMessage() *pb.Cluster {
	message := &pb.Cluster{
		Server:                   c.Server,
		InsecureSkipTlsVerify:    c.InsecureSkipTLSVerify,
		CertificateAuthorityData: c.CertificateAuthorityData,
		DisableCompression:       c.DisableCompression,
		Config:                   c.PluginConfig(),
	}
	if c.TLSServerName != "" {
		message.TlsServerName = &c.TLSServerName
	}
	if proxy := c.ProxyURL(); proxy != "" {
		message.ProxyUrl = &proxy
	}
	return message
}
