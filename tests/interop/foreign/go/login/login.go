// Package login tells how a program gets in through TLS and SCRAM: Login.go_json in tests/support/clients/login.py.
package login

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"log"
	"os"
)

// Login is who comes, and whose word for the broker counts.
type Login struct {
	User, Password, Mechanism string
	// Authority is a file of certificates.
	Authority string
}

// Read returns what that argument of the command line has; nil without it.
func Read(index int) *Login {
	if len(os.Args) <= index {
		return nil
	}
	found := &Login{}
	if err := json.Unmarshal([]byte(os.Args[index]), found); err != nil {
		log.Fatal(err)
	}
	return found
}

// TLS trusts only the authority.
func (l *Login) TLS() *tls.Config {
	certificates, err := os.ReadFile(l.Authority)
	if err != nil {
		log.Fatal(err)
	}
	trusted := x509.NewCertPool()
	if !trusted.AppendCertsFromPEM(certificates) {
		log.Fatalf("no certificate in %s", l.Authority)
	}
	return &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS12}
}
