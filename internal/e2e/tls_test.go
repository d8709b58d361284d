package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/claimq/claimq/internal/redistest"
)

// A server reached by TLS with a private authority, as a named user, in a
// database other than the first: by URL and REDIS_CA_FILE alone.
func TestTLSUserAndDatabase(t *testing.T) {
	dir := t.TempDir()
	cert, key := certificate(t, dir)
	port := freePort(t)
	srv := redistest.Start(t, "--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", cert,
		"--tls-auth-clients", "no")
	if err := srv.Client().Do(bg, "ACL", "SETUSER", "app", "on", ">s3cret", "~claimq:*", "&*", "+@all").Err(); err != nil {
		t.Fatal(err)
	}
	check := func(url, ca string) (string, error) {
		cmd := exec.Command(workerPath, "check")
		cmd.Env = []string{"REDIS_URL=" + url, "REDIS_CA_FILE=" + ca, "PUSH_URLS=*=http://127.0.0.1:1/", "OPS_ADDR=off"}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	good := "rediss://app:s3cret@localhost:" + port + "/2"
	if out, err := check(good, cert); err != nil || !strings.Contains(out, "check: ok") {
		t.Errorf("%v\n%s", err, out)
	}
	for name, bad := range map[string][2]string{
		"without the authority": {good, ""},
		"wrong password":        {"rediss://app:wr0ng@localhost:" + port + "/2", cert},
	} {
		out, err := check(bad[0], bad[1])
		if err == nil {
			t.Errorf("%s: passed\n%s", name, out)
		}
		if strings.Contains(out, "s3cret") || strings.Contains(out, "wr0ng") {
			t.Errorf("%s: the password is shown\n%s", name, out)
		}
	}
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return fmt.Sprint(l.Addr().(*net.TCPAddr).Port)
}

// certificate makes a certificate for localhost that is its own authority.
func certificate(t *testing.T, dir string) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"}, DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, b []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return write("cert.pem", "CERTIFICATE", der), write("key.pem", "EC PRIVATE KEY", secret)
}
