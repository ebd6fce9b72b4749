# Builds for macOS on another system, with zig as the compiler: payload build --cross. What is linked is
# the system's own C++ library, as libc++.tbd lists it, not the one that the toolchain brings.

set(CMAKE_SYSTEM_NAME Darwin)
set(CMAKE_SYSTEM_PROCESSOR arm64)

# try_compile reads this file again, in a project of its own.
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES PAYLOAD_TOOLCHAIN_SOURCE_DIR CMAKE_OSX_DEPLOYMENT_TARGET)
if(NOT PAYLOAD_TOOLCHAIN_SOURCE_DIR)
  message(FATAL_ERROR "building for macOS: PAYLOAD_TOOLCHAIN_SOURCE_DIR is empty; configure by: payload build --cross")
endif()
set(zig "${PAYLOAD_TOOLCHAIN_SOURCE_DIR}/zig")
set(target "-target;aarch64-macos.${CMAKE_OSX_DEPLOYMENT_TARGET}")
set(CMAKE_C_COMPILER "${zig};cc;${target}")
set(CMAKE_CXX_COMPILER "${zig};c++;${target}")

# The linker writes names and search paths right at once, so nothing is left to do for this tool. CMake
# does not go on without one.
set(CMAKE_INSTALL_NAME_TOOL "${CMAKE_COMMAND}" CACHE FILEPATH "not used")

# zig would build its C++ library first, for minutes, whenever it links: also where CMake only looks at
# what the compiler is. For that the option is there; compiling needs the library's headers, and
# compile.cmake takes it off again. Tests of the compiler link nothing.
set(CMAKE_CXX_FLAGS_INIT "-nostdlib++")
foreach(lang C CXX)
  set(CMAKE_USER_MAKE_RULES_OVERRIDE_${lang} "${CMAKE_CURRENT_LIST_DIR}/compile.cmake")
endforeach()
foreach(kind EXE SHARED MODULE)
  set(CMAKE_${kind}_LINKER_FLAGS_INIT "-nostdlib++")
endforeach()

# The symbols of the system's C++ library. One that came later is there only for systems that have it:
# the linker would take it from there rather than from the objects that bring it themselves.
set(stub "${CMAKE_BINARY_DIR}/libc++.tbd")
file(READ "${CMAKE_CURRENT_LIST_DIR}/libc++.tbd" text)
file(GLOB later RELATIVE "${CMAKE_CURRENT_LIST_DIR}" "${CMAKE_CURRENT_LIST_DIR}/libc++-*.txt")
foreach(file IN LISTS later)
  string(REGEX REPLACE "^libc[+][+]-(.*)[.]txt$" "\\1" since "${file}")
  if(CMAKE_OSX_DEPLOYMENT_TARGET VERSION_GREATER_EQUAL since)
    file(STRINGS "${CMAKE_CURRENT_LIST_DIR}/${file}" symbols)
    list(JOIN symbols ", " symbols)
    string(REPLACE "symbols:     [ " "symbols:     [ ${symbols}, " text "${text}")
  endif()
endforeach()
file(CONFIGURE OUTPUT "${stub}" CONTENT "${text}" @ONLY)
set(CMAKE_CXX_STANDARD_LIBRARIES "${stub}")
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)

# Programs are those of this system, everything else is what the project names.
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
foreach(mode LIBRARY INCLUDE PACKAGE)
  set(CMAKE_FIND_ROOT_PATH_MODE_${mode} ONLY)
endforeach()
set(CMAKE_FIND_ROOT_PATH "${CMAKE_CURRENT_LIST_DIR}/none")
