# libmlx as upstream compiled it: the target mlx is the library of the wheel, and what it needs is
# installed beside it. The wheel's own CMake files are left alone: they name folders of the machine
# that made them.

payload_prebuilt(mlx "${PAYLOAD_PRESET}")

# Headers of one version and a library of another would compile, and then crash.
foreach(part SOURCE PREBUILT)
  set(header "${MLX_SOURCE_DIR}/mlx/version.h")
  if(part STREQUAL "PREBUILT")
    set(header "${MLX_PREBUILT_DIR}/mlx/include/mlx/version.h")
  endif()
  if(NOT EXISTS "${header}")
    message(FATAL_ERROR "reading the version of MLX: there is no ${header}")
  endif()
  file(STRINGS "${header}" lines REGEX "#define MLX_VERSION_(MAJOR|MINOR|PATCH) ")
  string(REGEX MATCHALL "[0-9]+" numbers "${lines}")
  list(JOIN numbers "." version_${part})
endforeach()
if(NOT version_SOURCE STREQUAL version_PREBUILT)
  message(FATAL_ERROR
    "using the wheel in ${MLX_PREBUILT_DIR}: it holds MLX ${version_PREBUILT}, pinned is ${MLX_REF}, which is ${version_SOURCE}")
endif()

set(lib "${MLX_PREBUILT_DIR}/mlx/lib")
set(library "${lib}/${CMAKE_SHARED_LIBRARY_PREFIX}mlx${CMAKE_SHARED_LIBRARY_SUFFIX}")
if(WIN32)
  set(library "${MLX_PREBUILT_DIR}/mlx/mlx.dll")
endif()
if(NOT EXISTS "${library}")
  message(FATAL_ERROR "using the wheel in ${MLX_PREBUILT_DIR}: it has no ${library}")
endif()
add_library(mlx SHARED IMPORTED GLOBAL)
set_target_properties(mlx PROPERTIES
  IMPORTED_LOCATION "${library}"
  IMPORTED_IMPLIB "${lib}/mlx.lib"
  IMPORTED_SONAME "$<IF:$<PLATFORM_ID:Darwin>,@rpath/,>${CMAKE_SHARED_LIBRARY_PREFIX}mlx${CMAKE_SHARED_LIBRARY_SUFFIX}"
  INTERFACE_COMPILE_FEATURES cxx_std_20)
target_include_directories(mlx INTERFACE "${MLX_PREBUILT_DIR}/mlx/include")
if(IS_DIRECTORY "${MLX_PREBUILT_DIR}/mlx/include/metal_cpp")
  target_include_directories(mlx INTERFACE "${MLX_PREBUILT_DIR}/mlx/include/metal_cpp")
endif()

# The library, what the wheel brings for it, and on Metal its kernels: it looks for them beside itself.
file(GLOB files "${lib}/*.so*" "${lib}/*.dylib" "${lib}/*.metallib" "${MLX_PREBUILT_DIR}/*.libs/*" "${MLX_PREBUILT_DIR}/mlx/*.dll")
if(APPLE AND NOT EXISTS "${lib}/mlx.metallib")
  message(FATAL_ERROR "using the wheel in ${MLX_PREBUILT_DIR}: it has no ${lib}/mlx.metallib")
endif()
install(FILES ${files} DESTINATION "${folder}" COMPONENT mlx)

file(GLOB notices "${MLX_PREBUILT_DIR}/*.dist-info/licenses/*" "${MLX_PREBUILT_DIR}/*.dist-info/sboms/*")
install(FILES ${notices} DESTINATION "lib/payload/licenses/${PAYLOAD_MLX_FOLDER}" COMPONENT mlx)

# Licences of the libraries that the wheel brings, which it leaves out.
file(GLOB bundled RELATIVE "${MLX_PREBUILT_DIR}" "${MLX_PREBUILT_DIR}/*.libs/*" "${MLX_PREBUILT_DIR}/mlx/lib*.dll")
foreach(file IN LISTS bundled)
  cmake_path(GET file FILENAME name)
  string(REGEX REPLACE "^lib([a-z]+)[-.].*$" "\\1" name "${name}")
  if(NOT DEFINED _licence_of_${name})
    set(_licence_of_${name} "${CMAKE_CURRENT_SOURCE_DIR}/licenses/${name}.txt")
    if(NOT EXISTS "${_licence_of_${name}}")
      message(FATAL_ERROR "collecting licences: the wheel brings ${file}, and there is no ${_licence_of_${name}}")
    endif()
    install(FILES "${_licence_of_${name}}" DESTINATION "lib/payload/licenses/${PAYLOAD_MLX_FOLDER}" COMPONENT mlx)
  endif()
endforeach()
