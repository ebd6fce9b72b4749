# libmlx compiled from the pinned, patched tree. Nothing is downloaded: json and fmt are the system's,
# and so are BLAS and LAPACK on Linux, which are installed with what they need.

find_path(PAYLOAD_JSON_INCLUDE_DIR nlohmann/json.hpp DOC "folder that holds nlohmann/json.hpp")
find_path(PAYLOAD_FMT_INCLUDE_DIR fmt/format.h DOC "folder that holds fmt/format.h")
set(wanted PAYLOAD_JSON_INCLUDE_DIR PAYLOAD_FMT_INCLUDE_DIR)
if(CMAKE_SYSTEM_NAME STREQUAL "Linux")
  find_path(PAYLOAD_LAPACKE_INCLUDE_DIR lapacke.h DOC "folder that holds lapacke.h")
  find_library(PAYLOAD_OPENBLAS_LIBRARY openblas DOC "OpenBLAS")
  list(APPEND wanted PAYLOAD_LAPACKE_INCLUDE_DIR PAYLOAD_OPENBLAS_LIBRARY)
endif()
set(missing "")
foreach(var IN LISTS wanted)
  if(NOT ${var})
    get_property(what CACHE ${var} PROPERTY HELPSTRING)
    list(APPEND missing "${what}")
  endif()
endforeach()
if(missing)
  list(JOIN missing ", " missing)
  message(FATAL_ERROR "compiling MLX: not found: ${missing}. \
On Debian and Ubuntu: apt-get install libopenblas-dev liblapacke-dev nlohmann-json3-dev libfmt-dev")
endif()

# MLX includes "json.hpp" from single_include/nlohmann of an unpacked release.
set(json "${CMAKE_BINARY_DIR}/json/single_include")
file(MAKE_DIRECTORY "${json}")
file(CREATE_LINK "${PAYLOAD_JSON_INCLUDE_DIR}/nlohmann" "${json}/nlohmann" SYMBOLIC)
set(FETCHCONTENT_SOURCE_DIR_JSON "${CMAKE_BINARY_DIR}/json")

payload_add_subdirectory(mlx EXCLUDE_FROM_ALL OUTPUTS "${CMAKE_BINARY_DIR}/bin")
payload_install(COMPONENT mlx FOLDER "${PAYLOAD_MLX_FOLDER}" TARGETS mlx)

if(CMAKE_SYSTEM_NAME STREQUAL "Linux")
  include(SystemLibraries)
  payload_system_libraries(COMPONENT mlx FOLDER "${PAYLOAD_MLX_FOLDER}" TARGET mlx)
endif()
