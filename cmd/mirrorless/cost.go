package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"mirrorless/shared/cost"
)

func costCommand() *cobra.Command {
	load := cost.Load{ActiveHours: 24, Topics: 1, Zones: 2, Network: cost.NoVPC, Memory: cost.DefaultMemory, Window: cost.DefaultWindow}
	var prices string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "cost",
		Short: "Say what a flow costs in AWS in a month, beside MSK Replicator and MirrorMaker 2",
		Long: `Say what a flow costs in AWS in a month, beside MSK Replicator and an always-on
MirrorMaker 2. No cluster and no account is asked: the figures come from measured
invocations and a file of prices, and from what the flags say. What all three have in
common, the clusters and their traffic between zones, is left out, as are free tiers.

--prices replaces some or all prices by those of a file like shared/cost/prices.json.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := load.Check(); err != nil {
				return exit(exitUsage, err)
			}
			p, err := cost.DefaultPrices()
			if err != nil {
				return err
			}
			if prices != "" {
				text, err := os.ReadFile(prices)
				if err != nil {
					return fmt.Errorf("read prices: %w", err)
				}
				if p, err = cost.ParsePrices(text, p); err != nil {
					return fmt.Errorf("%s: %w", prices, err)
				}
			}
			ways := []pricedWay{
				{"mirrorless", cost.Mirrorless(load, p)}, {"MSK Replicator", cost.Replicator(load, p)}, {"MirrorMaker 2, always on", cost.MirrorMaker(load, p)},
			}
			if asJSON {
				return printCostsJSON(cmd.OutOrStdout(), ways, p)
			}
			return printCosts(cmd.OutOrStdout(), ways, p)
		},
	}
	f := cmd.Flags()
	f.Float64Var(&load.GBPerDay, "gb-per-day", 0, "GB of keys and values in a day; 0 is an idle flow")
	f.IntVar(&load.Topics, "topics", load.Topics, "topics that the flow copies")
	f.Float64Var(&load.ActiveHours, "active-hours", load.ActiveHours, "hours of a day in which records arrive")
	f.DurationVar(&load.Window, "window", load.Window, "mirrorless.batch.window")
	f.IntVar(&load.PollerUnits, "provisioned", 0, "event poller units of provisioned mode, 20 MB/s each; 0 is on-demand")
	f.StringVar((*string)(&load.Network), "network", string(load.Network), "how functions in a VPC reach AWS: none, endpoints or nat")
	f.IntVar(&load.Zones, "zones", load.Zones, "zones with end points or NAT gateways")
	f.IntVar(&load.Memory, "memory", load.Memory, "memory of mirror in MB")
	f.StringVar(&prices, "prices", "", "file of prices that replace the built-in ones")
	f.BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

// pricedWay is one way to replicate.
type pricedWay struct {
	Name string
	Bill cost.Bill
}

func printCosts(w io.Writer, ways []pricedWay, p cost.Prices) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, way := range ways {
		fmt.Fprintf(out, "%s\t%10.2f\t%s a month\n", way.Name, way.Bill.Total(), p.Currency)
		for _, l := range way.Bill {
			fmt.Fprintf(out, "  %s\t%10.2f\t%s\n", l.What, l.USD, l.How)
		}
	}
	fmt.Fprintf(out, "Prices of %s, %s.\n", p.Region, p.Date)
	return out.Flush()
}

func printCostsJSON(w io.Writer, ways []pricedWay, p cost.Prices) error {
	type line struct {
		What string  `json:"what"`
		Cost float64 `json:"cost"`
		How  string  `json:"how"`
	}
	type way struct {
		Name  string  `json:"name"`
		Cost  float64 `json:"cost"`
		Lines []line  `json:"lines"`
	}
	report := struct {
		Currency string `json:"currency"`
		Region   string `json:"region"`
		Date     string `json:"date"`
		Month    []way  `json:"month"`
	}{p.Currency, p.Region, p.Date, nil}
	for _, x := range ways {
		out := way{x.Name, x.Bill.Total(), nil}
		for _, l := range x.Bill {
			out.Lines = append(out.Lines, line{l.What, l.USD, l.How})
		}
		report.Month = append(report.Month, out)
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(report)
}
