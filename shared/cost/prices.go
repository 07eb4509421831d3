package cost

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

//go:embed prices.json
var defaultPrices []byte

// Price is one price of AWS's.
type Price struct {
	Name string `json:"name"`
	// Value in the file's currency.
	Value float64 `json:"value"`
	// Unit is what it is for.
	Unit string `json:"unit"`
	// Source is AWS's page that has it; Seen the page where it was read, empty where
	// it is only what is generally said.
	Source string `json:"source"`
	Seen   string `json:"seen"`
}

// Prices are those of one region on one day.
type Prices struct {
	Region   string  `json:"region"`
	Currency string  `json:"currency"`
	Date     string  `json:"date"` // as in 2026-11-30
	Note     string  `json:"note,omitempty"`
	List     []Price `json:"prices"`
}

// DefaultPrices are those of the file prices.json of this package.
func DefaultPrices() (Prices, error) { return ParsePrices(defaultPrices, Prices{}) }

// ParsePrices reads a file of prices. Those that it leaves out are base's, and so
// are region, currency and date. A name that base does not have is an error, unless
// base is empty.
func ParsePrices(file []byte, base Prices) (Prices, error) {
	var p Prices
	d := json.NewDecoder(bytes.NewReader(file))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		return Prices{}, fmt.Errorf("read prices: %w", err)
	}
	var errs []error
	for _, price := range p.List {
		if price.Value < 0 {
			errs = append(errs, fmt.Errorf("%s is negative", price.Name))
		}
		if _, known := base.find(price.Name); !known && len(base.List) > 0 {
			errs = append(errs, fmt.Errorf("there is no %s: the names are %s", price.Name, strings.Join(base.names(), ", ")))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return Prices{}, fmt.Errorf("read prices: %w", err)
	}
	for _, price := range base.List {
		if _, given := p.find(price.Name); !given {
			p.List = append(p.List, price)
		}
	}
	p.Region, p.Currency, p.Date = cmp.Or(p.Region, base.Region), cmp.Or(p.Currency, base.Currency), cmp.Or(p.Date, base.Date)
	return p, nil
}

func (p Prices) find(name string) (Price, bool) {
	i := slices.IndexFunc(p.List, func(price Price) bool { return price.Name == name })
	if i < 0 {
		return Price{}, false
	}
	return p.List[i], true
}

func (p Prices) names() (names []string) {
	for _, price := range p.List {
		names = append(names, price.Name)
	}
	return names
}

// of is a price that every file has.
func (p Prices) of(name string) float64 {
	price, known := p.find(name)
	if !known {
		panic("there is no price " + name)
	}
	return price.Value
}
