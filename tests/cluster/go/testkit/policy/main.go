// The last CNI plugin of the chain: a pod's network is ready only when the policy enforcer says that it has decided
// about its address. No answer is a failure, so nothing ever runs on an address without a decision.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"
)

const patience = 15 * time.Second

type config struct {
	Version  string          `json:"cniVersion"`
	Socket   string          `json:"socket"`
	Previous json.RawMessage `json:"prevResult"`
}

type request struct {
	Command   string `json:"command"`
	Container string `json:"container"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Address   string `json:"address"`
}

func main() {
	command := os.Getenv("CNI_COMMAND")
	if command == "VERSION" {
		fmt.Println(`{"cniVersion":"1.0.0","supportedVersions":["0.4.0","1.0.0"]}`)
		return
	}
	input, err := io.ReadAll(os.Stdin)
	var settings config
	if err == nil {
		err = json.Unmarshal(input, &settings)
	}
	if err == nil {
		err = decide(command, settings)
	}
	if err != nil {
		answer, _ := json.Marshal(map[string]any{"cniVersion": settings.Version, "code": 11, "msg": err.Error()})
		fmt.Println(string(answer))
		os.Exit(1)
	}
	if command == "ADD" {
		fmt.Println(string(settings.Previous))
	}
}

func decide(command string, settings config) error {
	question := request{Command: command, Container: os.Getenv("CNI_CONTAINERID")}
	for _, pair := range strings.Split(os.Getenv("CNI_ARGS"), ";") {
		switch key, value, _ := strings.Cut(pair, "="); key {
		case "K8S_POD_NAMESPACE":
			question.Namespace = value
		case "K8S_POD_NAME":
			question.Name = value
		}
	}
	switch command {
	case "ADD":
		var err error
		if question.Address, err = address(settings.Previous); err != nil {
			return err
		}
		return ask(settings.Socket, question)
	case "DEL":
		// A pod has to go away even while the enforcer is down: it sees the deletion from the API as well.
		_ = ask(settings.Socket, question)
	}
	return nil
}

func address(previous json.RawMessage) (string, error) {
	var result struct {
		IPs []struct {
			Address string `json:"address"`
		} `json:"ips"`
	}
	if err := json.Unmarshal(previous, &result); err != nil {
		return "", fmt.Errorf("cannot read the result of the plugin before: %w", err)
	}
	for _, entry := range result.IPs {
		if found, _, err := net.ParseCIDR(entry.Address); err == nil && found.To4() != nil {
			return found.String(), nil
		}
	}
	return "", fmt.Errorf("cannot decide about a pod without an IPv4 address")
}

func ask(socket string, question request) error {
	connection, err := net.DialTimeout("unix", socket, patience)
	if err != nil {
		return fmt.Errorf("cannot reach the policy enforcer: %w", err)
	}
	defer connection.Close()
	connection.SetDeadline(time.Now().Add(patience))
	if err := json.NewEncoder(connection).Encode(question); err != nil {
		return fmt.Errorf("cannot ask the policy enforcer: %w", err)
	}
	var answer struct {
		Error string `json:"error"`
	}
	if err := json.NewDecoder(bufio.NewReader(connection)).Decode(&answer); err != nil {
		return fmt.Errorf("cannot read the policy enforcer's answer: %w", err)
	}
	if answer.Error != "" {
		return fmt.Errorf("the policy enforcer cannot decide: %s", answer.Error)
	}
	return nil
}
