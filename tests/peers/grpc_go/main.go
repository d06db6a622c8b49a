// Makes one ShouldRateLimit call over mutual TLS, and prints the response in hexadecimal.
//
// Arguments: the address, the folder of the certificates, and the message of the request in hexadecimal.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

const method = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"

// encoded passes messages that are already encoded.
type encoded struct{}

func (encoded) Name() string { return "proto" }

func (encoded) Marshal(message any) ([]byte, error) { return *message.(*[]byte), nil }

func (encoded) Unmarshal(data []byte, message any) error {
	*message.(*[]byte) = append([]byte(nil), data...)
	return nil
}

func call(address, folder, message string) (string, error) {
	file := func(name string) string { return filepath.Join(folder, name) }
	pair, err := tls.LoadX509KeyPair(file("envoy.crt"), file("envoy.key"))
	if err != nil {
		return "", err
	}
	authority, err := os.ReadFile(file("ca.crt"))
	if err != nil {
		return "", err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		return "", fmt.Errorf("no certificate in %s", file("ca.crt"))
	}
	config := &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots, MinVersion: tls.VersionTLS12}
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(credentials.NewTLS(config)))
	if err != nil {
		return "", err
	}
	defer connection.Close()
	request, err := hex.DecodeString(message)
	if err != nil {
		return "", err
	}
	deadline, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var response []byte
	if err := connection.Invoke(deadline, method, &request, &response, grpc.ForceCodec(encoded{})); err != nil {
		return "", err
	}
	return hex.EncodeToString(response), nil
}

func main() {
	if len(os.Args) != 4 {
		log.Fatal("usage: grpc_go ADDRESS FOLDER MESSAGE")
	}
	response, err := call(os.Args[1], os.Args[2], os.Args[3])
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(response)
}
