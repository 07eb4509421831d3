package main

import (
	"os"

	"github.com/spf13/cobra"

	"mirrorless/shared/config"
)

func configCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "config FILE",
		Short: "Say what an mm2.properties file means, and what is wrong with it",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := loadConfig(args[0])
			if err != nil {
				return err
			}
			if len(c.Errors) > 0 {
				return exit(exitFailed, nil)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object instead, also where the file has errors")
	return cmd
}

// loadConfig reads the properties file at path with this machine's files and
// environment.
func loadConfig(path string) (*config.Config, error) {
	return config.Load(path, config.Sources{ReadFile: os.ReadFile, LookupEnv: os.LookupEnv})
}
