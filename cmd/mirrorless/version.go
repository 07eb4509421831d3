package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version, and the commit it was built from",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), version())
			return err
		},
	}
}

func version() string {
	info, _ := debug.ReadBuildInfo()
	return versionLine(info)
}

// versionLine says which build this is; info is nil in a binary without build
// information.
func versionLine(info *debug.BuildInfo) string {
	version, revision, day, changed := "(devel)", "", "", ""
	if info != nil {
		version = cmp.Or(info.Main.Version, version)
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				revision = s.Value[:min(12, len(s.Value))]
			case s.Key == "vcs.time":
				day, _, _ = strings.Cut(s.Value, "T")
			case s.Key == "vcs.modified" && s.Value == "true":
				changed = " with changes"
			}
		}
	}
	commit := "commit unknown (not built in a clone, or with -buildvcs=false)"
	if revision != "" {
		commit = "commit " + revision
		if day != "" {
			commit += " of " + day
		}
		commit += changed
		if strings.Contains(version, revision) {
			version = "(devel)" // a pseudo-version says the same
		}
	}
	return fmt.Sprintf("mirrorless %s, %s, %s %s/%s", version, commit, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
