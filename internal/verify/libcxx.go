package verify

import "strings"

// libcxxSymbol is a symbol that macOS's C++ library came to have.
type libcxxSymbol struct {
	prefix string // of the symbol as a Mach-O file has it
	macOS  string // the first version whose library has it; empty where none is known to
	what   string
}

// libcxxSymbols lists what the system's library has since some time only.
// Which release of libc++ brought a symbol is in its ABI changelog
// (libcxx/lib/abi/CHANGELOG.TXT), which macOS has that release in its
// availability.h (_LIBCPP_INTRODUCED_IN_LLVM_nn). What macOS 13 had already is
// left out, but for a few.
var libcxxSymbols = []libcxxSymbol{
	// LLVM 22
	{"__ZNSt3__123__atomic_monitor_globalEPKv", "", "std::atomic's waiting of LLVM 22"},
	{"__ZNSt3__126__atomic_wait_global_table", "", "std::atomic's waiting of LLVM 22"},
	{"__ZNSt3__132__atomic_notify_", "", "std::atomic's waiting of LLVM 22"},
	{"__ZNSt3__120__atomic_wait_native", "", "std::atomic's waiting of LLVM 22"},
	{"__ZNSt3__126__atomic_notify_one_native", "", "std::atomic's waiting of LLVM 22"},
	{"__ZNSt3__126__atomic_notify_all_native", "", "std::atomic's waiting of LLVM 22"},
	// LLVM 21
	{"__ZNSt3__113__hash_memoryEPKvm", "", "std::hash of LLVM 21"},
	{"__ZNKSt3__117bad_function_call4whatEv", "", "std::bad_function_call::what of LLVM 21"},
	// LLVM 20
	{"__ZNSt3__127__from_chars_floating_point", "26.0", "std::from_chars of floating point"},
	// LLVM 19
	{"__ZNSt3__16chrono13get_tzdb_listEv", "15.4", "the time zone database"},
	{"__ZNSt3__16chrono8get_tzdbEv", "15.4", "the time zone database"},
	{"__ZNSt3__16chrono11reload_tzdbEv", "15.4", "the time zone database"},
	{"__ZNSt3__16chrono14remote_versionE", "15.4", "the time zone database"},
	{"__ZNKSt3__16chrono9time_zone", "15.4", "the time zone database"},
	{"__ZTVNSt3__117bad_function_callE", "15.4", "the vtable of std::bad_function_call"},
	{"__ZTINSt3__117bad_function_callE", "15.4", "the type of std::bad_function_call"},
	{"__ZNSt3__117bad_function_callD", "15.4", "the destructor of std::bad_function_call"},
	{"__ZTVNSt3__119bad_expected_accessIvEE", "15.4", "the vtable of std::bad_expected_access"},
	{"__ZTINSt3__119bad_expected_accessIvEE", "15.4", "the type of std::bad_expected_access"},
	{"__ZNKSt3__119bad_expected_accessIvE4whatEv", "15.4", "std::bad_expected_access::what"},
	// LLVM 18
	{"___cxa_init_primary_exception", "15.0", "std::make_exception_ptr of LLVM 18"},
	{"__ZNSt3__119__is_posix_terminal", "15.0", "std::print"},
	{"__ZNSt3__117__get_ostream_file", "15.0", "std::print"},
	// LLVM 16
	{"__ZNSt3__13pmr", "14.0", "std::pmr"},
	{"__ZNKSt3__13pmr", "14.0", "std::pmr"},
	// LLVM 15 and 14
	{"__ZNSt3__122__libcpp_verbose_abort", "13.3", "libc++'s assertions"},
	{"__ZNSt3__18to_charsEPcS0_d", "13.3", "std::to_chars of floating point"},
	{"__ZNSt3__18to_charsEPcS0_e", "13.3", "std::to_chars of floating point"},
	{"__ZNSt3__18to_charsEPcS0_f", "13.3", "std::to_chars of floating point"},
}

// tooNew finds what an imported symbol stands for, where a system of version
// macOS lacks it.
func tooNew(symbol, macOS string) (libcxxSymbol, bool) {
	for _, s := range libcxxSymbols {
		if strings.HasPrefix(symbol, s.prefix) {
			return s, s.macOS == "" || newerThan(s.macOS, macOS)
		}
	}
	return libcxxSymbol{}, false
}
