/* Included before everything else when a Mach-O toolchain compiles for the libc++ that macOS has. */

/* libc++'s headers know since which macOS a symbol is in the system's library, and do without newer ones,
   but only when they are told that it is not their own library that is linked. */
#undef _LIBCPP_HAS_VENDOR_AVAILABILITY_ANNOTATIONS
#define _LIBCPP_HAS_VENDOR_AVAILABILITY_ANNOTATIONS 1

/* The toolchain's math.h leaves these to a float.h that it does not have. */
#define NAN __builtin_nanf("")
#define INFINITY __builtin_inff()
