package main

import (
	"runtime/debug"
	"strings"
	"testing"
)

func TestVersionNamesTheCommit(t *testing.T) {
	const revision = "bd3dd81d8dd8cce06508dc375175931b6ef94940"
	build := func(version string, settings ...debug.BuildSetting) *debug.BuildInfo {
		return &debug.BuildInfo{Main: debug.Module{Version: version}, Settings: settings}
	}
	at := []debug.BuildSetting{{Key: "vcs.revision", Value: revision}, {Key: "vcs.time", Value: "2026-11-30T18:30:34Z"}}
	for name, c := range map[string]struct {
		info *debug.BuildInfo
		want string
	}{
		"a clone":              {build("v0.0.0-20261130183034-bd3dd81d8dd8", append(at, debug.BuildSetting{Key: "vcs.modified", Value: "false"})...), "mirrorless (devel), commit bd3dd81d8dd8 of 2026-11-30, go"},
		"a clone with changes": {build("v0.0.0-20261130183034-bd3dd81d8dd8+dirty", append(at, debug.BuildSetting{Key: "vcs.modified", Value: "true"})...), "mirrorless (devel), commit bd3dd81d8dd8 of 2026-11-30 with changes, go"},
		"a release":            {build("v1.2.3", at...), "mirrorless v1.2.3, commit bd3dd81d8dd8 of 2026-11-30, go"},
		"no clone":             {build("(devel)"), "mirrorless (devel), commit unknown (not built in a clone, or with -buildvcs=false), go"},
		"no build information": {nil, "mirrorless (devel), commit unknown"},
	} {
		if got := versionLine(c.info); !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: got %q want %q…", name, got, c.want)
		}
	}
}
