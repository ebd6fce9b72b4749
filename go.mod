module payload

go 1.26.8
