package drift

import (
	"context"

	"payload/internal/report"
)

func checkUpstream(ctx context.Context, r *repo) ([]report.Finding, error) { return nil, nil }
