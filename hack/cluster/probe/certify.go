package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/outrigger-hpc/outrigger/api/bootstrap/pki"
)

// certify asks an issuer for a certificate with each of some tokens, and prints
// a line for each: its name, the status of the answer, and its text, or the subject of the
// certificate. A token @FILE is read from a file.
func certify(ctx context.Context, args []string) error {
	if len(args) < 2 {
		return errors.New("certify URL NAME=TOKEN and more of these")
	}
	//nolint:gosec // the probe accepts any server
	client := &http.Client{Timeout: answerTime, Transport: &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true}}}
	for _, a := range args[1:] {
		name, token, _ := strings.Cut(a, "=")
		if file, ok := strings.CutPrefix(token, "@"); ok {
			text, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			token = string(text)
		}
		if err := persist(ctx, func(ctx context.Context) error {
			return certifyBy(ctx, client, args[0], name, strings.TrimSpace(token))
		}); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// certifyBy sends one request; an answer that asks the caller to try again is an error.
func certifyBy(ctx context.Context, client *http.Client, url, name, token string) error {
	_, request, err := pki.NewRequest()
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(request))
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+token)
	answer, err := client.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	said, err := io.ReadAll(io.LimitReader(answer.Body, 64<<10))
	if err != nil {
		return err
	}
	if answer.StatusCode == http.StatusServiceUnavailable {
		return errors.New(string(said))
	}
	text := string(said)
	if block, _ := pem.Decode(said); block != nil {
		text = "a certificate"
	}
	fmt.Println(name, answer.StatusCode, strings.TrimSpace(text))
	return nil
}

// fetch prints a line for each URL: the URL, the status and the first line of the answer, or that
// there is no answer.
func fetch(ctx context.Context, args []string) error {
	client := &http.Client{Timeout: answerTime}
	for _, url := range args {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		answer, err := client.Do(r)
		if err != nil {
			fmt.Println(url, "unanswered", err)
			continue
		}
		said, err := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
		_ = answer.Body.Close() // the body has been read
		if err != nil {
			return err
		}
		line, _, _ := strings.Cut(string(said), "\n")
		fmt.Println(url, answer.StatusCode, line)
	}
	return nil
}
