// Package source owns where a component's files come from and the store that
// keeps them: an override, the store itself, upstream by git, and mirrors.
//
// Every source ends as a git tree in a private repository, so one id says that
// two sources hold the same bytes. Trees on disk are made from those objects
// beside their final place, checked, made read-only and renamed; they are
// checked again whenever they are used, and held under a shared lock.
//
// The store folder:
//
//	git/                 the private repository; refs/payload/… names what it holds
//	trees/KEY            one tree, read-only; KEY is over the pristine tree and the patch digests
//	trees/KEY.json       what it is
//	trees/KEY.index      git's index of it, with the stat data that makes a check quick
//	trees/KEY.lock       shared while the tree is used, exclusive while it is made; its time is the last use
//	trees/KEY.*.tmp      a tree being made, by the holder of the exclusive lock
//	history/             upstream's commits and folders, a repository for each upstream; only to name them
//	lineage/             its commits alone, only to order them
//	work/                downloads being unpacked, each under its own lock
//	builds/              a file for each build folder that uses trees, with its path
//
// The package doesn't know how patches are applied (the caller passes Apply),
// never changes an override, and never takes a tree on trust.
package source
