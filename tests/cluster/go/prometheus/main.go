// Command prometheus plays recorded scrapes through Prometheus' own storage, query engine and rules, without its
// discovery plug-ins, whose modules are many times its own.
//
//	prometheus RULES QUERIES SECONDS SCRAPE…
//
// SCRAPEs are files in the text format, one after another, SECONDS apart; a line "# JOB name" begins what was scraped
// from another target. QUERIES has one PromQL expression a line. The answer is JSON: the alerts that fire after the last
// scrape with their labels, and for each query the number of its series, or its error.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
)

type alert struct {
	Name   string            `json:"name"`
	State  string            `json:"state"`
	Labels map[string]string `json:"labels"`
}

type answer struct {
	Alerts []alert           `json:"alerts"`
	Series map[string]int    `json:"series"`
	Errors map[string]string `json:"errors"`
}

func main() {
	if err := play(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func play(args []string) error {
	if len(args) < 4 {
		return errors.New("usage: prometheus RULES QUERIES SECONDS SCRAPE…")
	}
	step, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "prometheus")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	db, err := tsdb.Open(folder, slog.New(slog.DiscardHandler), nil, tsdb.DefaultOptions(), nil)
	if err != nil {
		return err
	}
	defer db.Close()
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 10_000_000, Timeout: time.Minute})
	ctx := context.Background()
	manager := rules.NewManager(&rules.ManagerOptions{
		QueryFunc: rules.EngineQueryFunc(engine, db), AppendableV2: db, Queryable: db, Context: ctx,
		NotifyFunc: func(context.Context, string, ...*rules.Alert) {}, Logger: slog.New(slog.DiscardHandler),
	})
	groups, problems := manager.LoadGroups(time.Duration(step)*time.Second, labels.EmptyLabels(), "", nil, false, args[0])
	if len(problems) > 0 {
		return errors.Join(problems...)
	}
	now := time.Unix(1_700_000_000, 0)
	for _, name := range args[3:] {
		now = now.Add(time.Duration(step) * time.Second)
		if err := scrape(ctx, db, name, now); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		for _, group := range groups {
			group.Eval(ctx, now)
		}
	}
	found := answer{Alerts: []alert{}, Series: map[string]int{}, Errors: map[string]string{}}
	for _, group := range groups {
		for _, rule := range group.AlertingRules() {
			if rule.LastError() != nil {
				return fmt.Errorf("%s: %w", rule.Name(), rule.LastError())
			}
			for _, one := range rule.ActiveAlerts() {
				found.Alerts = append(found.Alerts, alert{rule.Name(), one.State.String(), one.Labels.Map()})
			}
		}
	}
	if err := query(ctx, engine, db, args[1], now, &found); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(found)
}

func scrape(ctx context.Context, db *tsdb.DB, name string, now time.Time) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	app := db.Appender(ctx)
	for number, part := range strings.Split("\n"+string(text), "\n# JOB ") {
		job := ""
		if number > 0 {
			job, part, _ = strings.Cut(part, "\n")
		}
		if err := take(app, job, []byte(part), now.UnixMilli()); err != nil {
			return err
		}
	}
	return app.Commit()
}

func take(app storage.Appender, job string, text []byte, at int64) error {
	parser, err := textparse.New(text, "text/plain; version=0.0.4", labels.NewSymbolTable(), textparse.ParserOptions{})
	if err != nil {
		return err
	}
	for {
		entry, err := parser.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if entry != textparse.EntrySeries {
			continue
		}
		_, _, value := parser.Series()
		var found labels.Labels
		parser.Labels(&found)
		builder := labels.NewBuilder(found)
		if job != "" {
			builder.Set("app_kubernetes_io_component", job)
		}
		if _, err := app.Append(0, builder.Labels(), at, value); err != nil {
			return err
		}
	}
}

func query(ctx context.Context, engine *promql.Engine, db *tsdb.DB, name string, now time.Time, found *answer) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	for _, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		if line == "" {
			continue
		}
		asked, err := engine.NewInstantQuery(ctx, db, nil, line, now)
		if err != nil {
			found.Errors[line] = err.Error()
			continue
		}
		result := asked.Exec(ctx)
		if result.Err != nil {
			found.Errors[line] = result.Err.Error()
			continue
		}
		if vector, ok := result.Value.(promql.Vector); ok {
			found.Series[line] = len(vector)
		} else if result.Value.Type() == parser.ValueTypeScalar {
			found.Series[line] = 1
		}
	}
	return nil
}
