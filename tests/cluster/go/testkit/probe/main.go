// What runs in the pods of the tests: it waits (the pause container), or it listens, dials and reports over a
// control port, so that a test needs one HTTP request to try many flows from inside a pod.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"
)

const usage = `usage: probe pause | serve [HOST:]CONTROL_PORT PROTOCOL:[HOST:]PORT… | shout PROTOCOL:HOST:PORT…`

func main() {
	arguments := os.Args[1:]
	switch {
	case len(arguments) == 1 && arguments[0] == "pause":
	case len(arguments) >= 2 && arguments[0] == "serve":
		serve(arguments[1], arguments[2:])
	case len(arguments) >= 2 && arguments[0] == "shout":
		go shout(arguments[1:])
	default:
		fail("cannot run: " + usage)
	}
	stopped := make(chan os.Signal, 1)
	signal.Notify(stopped, syscall.SIGTERM, syscall.SIGINT)
	<-stopped
}

func fail(message string) {
	fmt.Fprintln(os.Stderr, message)
	os.Exit(2)
}

// heard counts who has reached a listener, by the address it came from.
type heard struct {
	sync.Mutex
	from map[string]int
}

func (h *heard) note(address net.Addr) {
	host, _, _ := net.SplitHostPort(address.String())
	h.Lock()
	h.from[host]++
	h.Unlock()
}

var sources = heard{from: map[string]int{}}

func serve(control string, listeners []string) {
	for _, listener := range listeners {
		protocol, place, _ := strings.Cut(listener, ":")
		switch protocol {
		case "tcp":
			socket, err := net.Listen("tcp4", full(place))
			if err != nil {
				fail("cannot listen: " + err.Error())
			}
			go acceptAll(socket)
		case "udp":
			socket, err := net.ListenPacket("udp4", full(place))
			if err != nil {
				fail("cannot listen: " + err.Error())
			}
			go answerAll(socket)
		default:
			fail("cannot listen on " + listener + ": " + usage)
		}
	}
	http.HandleFunc("/dial", dialMany)
	http.HandleFunc("/heard", func(reply http.ResponseWriter, _ *http.Request) {
		sources.Lock()
		defer sources.Unlock()
		json.NewEncoder(reply).Encode(sources.from)
	})
	http.HandleFunc("/stream/open", openStream)
	http.HandleFunc("/stream/state", streamState)
	go func() { fail(http.ListenAndServe(full(control), nil).Error()) }()
}

// full makes an address of a port alone, which then is one on every interface.
func full(place string) string {
	if strings.Contains(place, ":") {
		return place
	}
	return ":" + place
}

func acceptAll(listener net.Listener) {
	for {
		connection, err := listener.Accept()
		if err != nil {
			fail("cannot accept: " + err.Error())
		}
		sources.note(connection.RemoteAddr())
		go func() {
			defer connection.Close()
			io.Copy(connection, connection)
		}()
	}
}

func answerAll(socket net.PacketConn) {
	buffer := make([]byte, 1500)
	for {
		count, from, err := socket.ReadFrom(buffer)
		if err != nil {
			fail("cannot read: " + err.Error())
		}
		sources.note(from)
		socket.WriteTo(buffer[:count], from)
	}
}

// dialMany tries every target at once: GET /dial?timeout=700ms&target=tcp:10.0.0.1:80&target=… → {"tcp:10.0.0.1:80": true}.
// With source=ADDRESS it comes from that address of several.
func dialMany(reply http.ResponseWriter, query *http.Request) {
	timeout, err := time.ParseDuration(query.FormValue("timeout"))
	if err != nil {
		http.Error(reply, "cannot dial: "+err.Error(), http.StatusBadRequest)
		return
	}
	answers := map[string]bool{}
	var guard sync.Mutex
	var all sync.WaitGroup
	for _, target := range query.Form["target"] {
		all.Add(1)
		go func() {
			defer all.Done()
			answered := dial(target, query.FormValue("source"), timeout)
			guard.Lock()
			answers[target] = answered
			guard.Unlock()
		}()
	}
	all.Wait()
	json.NewEncoder(reply).Encode(answers)
}

// dial says whether an echo came back in time; a datagram is sent again every fifth of it.
func dial(target, source string, timeout time.Duration) bool {
	protocol, address, _ := strings.Cut(target, ":")
	end := time.Now().Add(timeout)
	dialer := net.Dialer{Timeout: timeout}
	if own := net.ParseIP(source); own != nil && protocol == "tcp" {
		dialer.LocalAddr = &net.TCPAddr{IP: own}
	} else if own != nil {
		dialer.LocalAddr = &net.UDPAddr{IP: own}
	}
	connection, err := dialer.Dial(protocol+"4", address)
	if err != nil {
		return false
	}
	defer connection.Close()
	buffer := make([]byte, 16)
	for time.Now().Before(end) {
		if _, err := connection.Write([]byte("hello")); err != nil && protocol == "tcp" {
			return false
		}
		patience := end
		if protocol == "udp" {
			patience = time.Now().Add(timeout / 5)
		}
		connection.SetReadDeadline(patience)
		if count, err := connection.Read(buffer); err == nil && count > 0 {
			return true
		}
		if protocol == "tcp" {
			return false
		}
		time.Sleep(time.Until(patience))
	}
	return false
}

// shout sends to its targets as early and as often as it can: what a hostile first instruction would do.
func shout(targets []string) {
	for {
		for _, target := range targets {
			go dial(target, "", 500*time.Millisecond)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// stream is one long connection that is written to all the time; its state says when an echo was last seen.
type stream struct {
	sync.Mutex
	last   time.Time
	echoes int
	failed string
}

var streams sync.Map

func openStream(reply http.ResponseWriter, query *http.Request) {
	protocol, address, _ := strings.Cut(query.FormValue("target"), ":")
	connection, err := net.DialTimeout(protocol+"4", address, 3*time.Second)
	if err != nil {
		http.Error(reply, "cannot open: "+err.Error(), http.StatusBadGateway)
		return
	}
	state := &stream{last: time.Now()}
	streams.Store(query.FormValue("target"), state)
	go writeAlways(connection, state)
	go readAlways(connection, state)
}

func writeAlways(connection net.Conn, state *stream) {
	for {
		if _, err := connection.Write([]byte("beat")); err != nil {
			state.Lock()
			state.failed = err.Error()
			state.Unlock()
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func readAlways(connection net.Conn, state *stream) {
	buffer := make([]byte, 1500)
	for {
		if _, err := connection.Read(buffer); err != nil {
			return
		}
		state.Lock()
		state.last = time.Now()
		state.echoes++
		state.Unlock()
	}
}

func streamState(reply http.ResponseWriter, query *http.Request) {
	found, known := streams.Load(query.FormValue("target"))
	if !known {
		http.Error(reply, "no such stream", http.StatusNotFound)
		return
	}
	state := found.(*stream)
	state.Lock()
	defer state.Unlock()
	json.NewEncoder(reply).Encode(map[string]any{
		"echoes": state.echoes, "silent_seconds": time.Since(state.last).Seconds(), "failed": state.failed,
	})
}
