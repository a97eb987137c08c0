package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// run is a file of results: what one command printed, on one machine.
type run struct {
	About      string  `json:"about,omitempty"` // what was measured, for docs/benchmarks/README.md
	Command    string  `json:"command"`
	Date       string  `json:"date"`
	Commit     string  `json:"commit,omitempty"` // commit of the measured program; absent: it was not recorded
	Machine    string  `json:"machine,omitempty"`
	Conditions string  `json:"conditions,omitempty"` // conditions of the measurement: rounds, load, other differences from the usual
	Outdated   string  `json:"outdated,omitempty"`   // why a run at the present commit would give other figures
	Tables     []table `json:"tables"`
}

type table struct {
	Title   string   `json:"title,omitempty"`
	Columns []string `json:"columns"`
	Rows    []row    `json:"rows"`
}

// row has a value for each column of its table. The unit is in the printed name.
type row struct {
	Name   string  `json:"name"`
	Unit   string  `json:"unit,omitempty"`
	Values []value `json:"values"`
	Target *target `json:"target,omitempty"`
}

// target bounds the values of a row.
type target struct {
	AtMost  *json.Number `json:"atMost,omitempty"`
	AtLeast *json.Number `json:"atLeast,omitempty"`
	Of      []string     `json:"of,omitempty"`     // columns that the target bounds; absent: all
	Ratio   bool         `json:"ratio,omitempty"`  // the target bounds the ratios, and not the values
	Missed  bool         `json:"missed,omitempty"` // the command that measured, which had the figures before rounding, found that the target is missed
	Source  string       `json:"source,omitempty"` // what the target is derived from
}

// value is a cell: nothing, a number, the numbers of single runs, or a number with the
// ratio to what it is compared with, or with the least and the most of the rounds. A
// number is printed with the digits that the file has.
type value struct {
	number, ratio, least, most json.Number
	single                     []json.Number
}

func (v *value) UnmarshalJSON(text []byte) error {
	switch text[0] {
	case 'n':
		return nil
	case '[':
		return json.Unmarshal(text, &v.single)
	case '{':
		var fields struct {
			Value, Ratio, Least, Most json.Number
		}
		d := json.NewDecoder(bytes.NewReader(text))
		d.DisallowUnknownFields()
		if err := d.Decode(&fields); err != nil {
			return err
		}
		*v = value{number: fields.Value, ratio: fields.Ratio, least: fields.Least, most: fields.Most}
		if (v.least == "") != (v.most == "") {
			return errors.New("a value has least or most alone, want both")
		}
		return nil
	}
	return json.Unmarshal(text, &v.number)
}

func (v value) String() string {
	if len(v.single) > 0 {
		texts := make([]string, len(v.single))
		for i, n := range v.single {
			texts[i] = string(n)
		}
		return strings.Join(texts, ", ")
	}
	text, in := string(v.number), string(v.ratio)
	if v.least != "" {
		in = fmt.Sprintf("%s to %s", v.least, v.most)
	}
	switch {
	case text == "":
		return in
	case in == "":
		return text
	}
	return text + " (" + in + ")"
}

// parse reads and checks a file of results.
func parse(text []byte) (*run, error) {
	var r run
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return nil, err
	}
	if r.Command == "" || r.Date == "" || len(r.Tables) == 0 {
		return nil, errors.New("command, date or tables are missing")
	}
	for _, t := range r.Tables {
		for _, row := range t.Rows {
			if err := row.check(t.Columns); err != nil {
				return nil, fmt.Errorf("table %q, row %q: %w", t.Title, row.Name, err)
			}
		}
	}
	return &r, nil
}

func (r row) check(columns []string) error {
	if len(r.Values) != len(columns) {
		return fmt.Errorf("%d values for %d columns", len(r.Values), len(columns))
	}
	if r.Target == nil {
		return nil
	}
	if (r.Target.AtMost == nil) == (r.Target.AtLeast == nil) {
		return errors.New("a target has either atMost or atLeast")
	}
	judged, _ := r.judge(columns)
	if judged == 0 {
		return errors.New("the target bounds no value")
	}
	return nil
}
