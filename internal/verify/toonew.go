package verify

import (
	"slices"

	"payload/internal/manifest"
	"payload/internal/report"
)

// TooNew are the findings of files in dir, those of m, that need a newer system
// than o's Glibc, Glibcxx and MacOS: what Payload reports of them, and nothing
// else that it would.
func TooNew(dir string, m manifest.Manifest, files []manifest.File, o Options) []report.Finding {
	var res Result
	t := targetOf(described{all: []manifest.Manifest{m}}, o)
	checkFloors(&res, readObjects(&res, dir, files), nil, t)
	images := readImages(&res, dir, files)
	for _, image := range images {
		checkMinimum(&res, image, t.macOSFor(image.path))
	}
	list, _ := layout(files)
	checkMetallibs(&res, dir, images, list, t)
	return slices.DeleteFunc(unique(res.Findings), func(f report.Finding) bool {
		return !slices.Contains([]string{"floor.glibc", "floor.glibcxx", "macho.minos", "metallib.too-new"}, f.ID)
	})
}
